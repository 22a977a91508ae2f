"""Counts groups of failures that get a contrast although none has a cause.

    python -m tests.benchmarks contrasts [--archive PATH] [--rounds 4]

The outcomes of real calls to each tool are shuffled in two ways: among all calls (`calls`), and by
giving each session the outcomes of another session (`sessions`), which keeps failures clustered.
Nothing then separates failing calls from working ones, and at most 5 % of the groups may get a
contrast.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

import mcptally
from mcptally.store.parts import write_part
from mcptally.store.work_folder import Provenance, create_work_folder, publish, remove_unlisted
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from tests.benchmarks import traffic
from tests.corpus import SAMPLES

_OF_OUTCOME: Final = ("outcome", "template", "verdict")
_TOOL: Final = ("server", "tool")


def main() -> None:
    """Print the share of groups with a contrast, for each way of shuffling."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks contrasts")
    parser.add_argument("--archive", type=Path, default=traffic.folder() or SAMPLES)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    print("| dealt to | groups | with a contrast |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        seed = Path(scratch, "seed")
        mcptally.score([given.archive], out=seed)
        calls = pl.read_parquet(seed / Calls.name / "*.parquet")
        for way, dealt in (("calls", to_calls), ("sessions", to_sessions)):
            groups = found = 0
            for number in range(given.rounds):
                random = np.random.default_rng(number)
                store = Path(scratch, f"{way} {number}")
                write(store, seed, dealt(calls, random))
                rows = mcptally.open_store(store).ask("contrasts").pl()
                groups += rows.height
                found += rows.get_column("test").is_not_null().sum()
            print(f"| {way} | {groups:,} | {found:,} ({found / groups:.1%}) |", flush=True)


def to_calls(calls: pl.DataFrame, random: np.random.Generator) -> pl.DataFrame:
    """Shuffle the outcomes of each tool among its calls."""
    order = pl.Series("order", random.random(calls.height))
    place = pl.int_range(pl.len()).over(_TOOL)
    source = calls.with_columns(order).sort("order").with_columns(place.alias("place"))
    return _joined(calls.with_columns(place.alias("place")), source, [*_TOOL, "place"])


def to_sessions(calls: pl.DataFrame, random: np.random.Generator) -> pl.DataFrame:
    """Give each session with a tool the outcomes of another session with the tool."""
    sessions = calls.select(*_TOOL, "session").unique(maintain_order=True)
    number = pl.int_range(pl.len()).over(_TOOL).alias("number")
    order = pl.Series("order", random.random(sessions.height))
    mixed = sessions.with_columns(order).sort("order").with_columns(number)
    giver = sessions.with_columns(number).join(
        mixed.select(*_TOOL, "number", giver="session"), on=[*_TOOL, "number"], nulls_equal=True
    )
    cell = [*_TOOL, "session"]
    placed = calls.sort("requested_at").with_columns(
        place=pl.int_range(pl.len()).over(cell), size=pl.len().over(cell)
    )
    source = placed.drop("size").rename({"session": "giver"})
    sizes = placed.select(*_TOOL, giver="session", given="size").unique()
    receivers = (
        placed.join(giver.drop("number"), on=cell, nulls_equal=True)
        .join(sizes, on=[*_TOOL, "giver"], nulls_equal=True)
        .with_columns(pl.col("place") % pl.col("given"))
    )
    return _joined(receivers, source, [*_TOOL, "giver", "place"])


def _joined(calls: pl.DataFrame, source: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    return calls.drop(_OF_OUTCOME).join(
        source.select(*key, *_OF_OUTCOME), on=key, how="left", nulls_equal=True
    )


def write(store: Path, seed: Path, calls: pl.DataFrame) -> None:
    """Write a store with these calls, and the other tables of another store."""
    work = create_work_folder(store)
    rows = {}
    for table in TABLES:
        frame = pl.read_parquet(seed / table.name / "*.parquet")
        frame = calls.select(frame.columns) if table is Calls else frame
        rows[table.name] = frame.height
        write_part(work, table, "0", frame)
    publish(store, work, sources=[], rows=rows, made=Provenance())
    remove_unlisted(store)


if __name__ == "__main__":
    main()
