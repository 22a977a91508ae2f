"""Scores a module's cases as one archive, because each run of `score` has a fixed cost."""

import functools
from pathlib import Path
from typing import Any

import polars as pl

import mcptally as mt
from tests.transcripts import write


class Cases:
    """Transcripts written by the tests of a module.

    Each is a file with recordings and servers of its own, so none is judged by the others.
    """

    def __init__(self) -> None:
        self._files: list[list[dict[str, Any] | bytes]] = []

    def add(self, *events: dict[str, Any] | bytes) -> int:
        """Add the events of a case and return its number.

        The names of its recordings and servers begin with the number.
        """
        number = len(self._files)
        named = []
        for event in events:
            if not isinstance(event, bytes):
                names = {n: f"{number}-{event[n]}" for n in ("recording", "server") if n in event}
                event = event | names  # noqa: PLW2901
            named.append(event)
        self._files.append(named)
        return number

    def score(self, folder: Path, **options: Any) -> "Scored":
        """Score all cases and return the tables; `options` are those of `mcptally.score`."""
        archive = folder / "archive"
        archive.mkdir()
        for number, events in enumerate(self._files):
            write(archive / f"{number}.jsonl", events)
        mt.score(archive, out=folder / "store", **options)
        return Scored(folder / "store")


class Scored:
    """The tables of the cases."""

    def __init__(self, store: Path) -> None:
        self.path = store
        self._table = functools.cache(self._read)

    def _read(self, table: str) -> dict[int, pl.DataFrame]:
        rows = pl.read_parquet(self.path / table / "*.parquet", missing_columns="insert")
        if "file" in rows.columns:
            number = pl.col("file").str.extract(r"(\d+)\.jsonl$")
        else:
            number = pl.col("server").str.extract(r"^(\d+)-")
        rows = rows.with_columns(number.cast(pl.Int64).alias("case"))
        parts = rows.partition_by("case", as_dict=True, include_key=False)
        return {case: part for (case,), part in parts.items()} | {None: rows.clear().drop("case")}

    def rows(self, table: str, case: int) -> pl.DataFrame:
        """Return the rows of a table about a case."""
        tables = self._table(table)
        return tables.get(case, tables[None])
