# ruff: noqa: E402  (imports are timed)
"""Where the CPU of `mcptally score` goes, stage by stage, with what each stage hands on.

    python -m tests.benchmarks stages [--archive PATH | --size 300] [--shape traffic|small]

One process scores the archive on one core, with a clock around every stage. CPU is user and system
time of the process; a stage does not count what another stage took within it. Rows and megabytes
are those of the frames a stage gives back.
"""

import argparse
import dataclasses
import functools
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mcptally import process_memory

process_memory.configure_allocators()  # as the command does, before the columnar libraries load
BEFORE: Final = time.process_time()

import msgspec
import polars as pl

from mcptally.jsonschemas import validate
from mcptally.pipeline import partition, run, scoring
from mcptally.pipeline.engines import worker
from mcptally.protocol import all_rules, definition_lint, leaked_secrets
from mcptally.seeds import stages
from mcptally.store import parts, work_folder
from mcptally.verdict import classify, evidence, hidden_errors, stderr_exceptions
from tests.benchmarks.archive import SHAPES, generate

IMPORTS: Final = time.process_time() - BEFORE

STAGES: Final[tuple[tuple[str, ModuleType | type, tuple[str, ...]], ...]] = (
    ("lines to columns", partition, ("decode_slices",)),
    ("integrity", partition, ("deduplicate",)),
    ("sessions", partition, ("assign_sessions",)),
    ("pairing", partition, ("pair",)),
    ("what is known of tools", partition, ("read_listings",)),
    ("what is known of tools", evidence, ("add_recording_end", "add_evidence")),
    ("what is known of tools", evidence, ("count_calls_per_minute", "count_result_forms")),
    ("what is known of tools", stages, ("with_combination", "argument_combinations")),
    ("what is known of tools", stages, ("gather_validations", "with_validations")),
    ("exceptions on stderr", stderr_exceptions, ("add_stderr_error",)),
    ("protocol findings", all_rules, ("check_protocol",)),
    ("recordings", partition, ("_recordings",)),
    ("definitions in force", partition, ("add_definitions",)),
    ("schemas", validate, ("validate_calls", "schema_findings")),
    ("scenarios", scoring, ("assign_scenarios",)),
    ("hidden errors", hidden_errors, ("find_hidden_errors",)),
    ("verdicts", classify, ("judge",)),
    ("seed and inspector scores", stages, ("add_seed_scores",)),
    ("retries", partition, ("link_attempts",)),
    ("contracts", stages, ("normalise_errors", "contract_findings", "contract_tables")),
    ("secrets in results", leaked_secrets, ("find_leaked_secrets",)),
    ("findings about definitions", definition_lint, ("lint_definitions", "check_read_only_hints")),
    ("usage", partition, ("usage",)),
    ("gathering, rest", partition, ("_gather_next",)),
    ("finishing, rest", worker, ("finish",)),
    ("summaries and spool", parts, ("write_summary",)),
    ("summaries and spool", worker, ("save", "load", "pack", "unpack")),
    ("Parquet", worker.PartWriter, ("write", "__exit__")),
    ("tools table", run, ("tools",)),
    ("publishing", work_folder, ("publish",)),
    ("checksums", worker, ("file_state", "source_of")),
)


@dataclasses.dataclass(slots=True)
class Spent:
    """What a stage took and gave."""

    cpu: float = 0.0
    rows: int = 0
    size: int = 0


class Clock:
    """CPU by stage; time goes to the innermost stage that is running."""

    def __init__(self) -> None:
        self.spent: dict[str, Spent] = {}
        self.running: list[str] = []
        self.last = 0.0

    def _turn(self) -> None:
        now = time.process_time()
        if self.running:
            self.spent[self.running[-1]].cpu += now - self.last
        self.last = now

    def around(self, stage: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`inner`, timed as part of the stage."""
        spent = self.spent.setdefault(stage, Spent())

        @functools.wraps(inner)
        def timed(*args: Any, **named: Any) -> Any:
            self._turn()
            self.running.append(stage)
            try:
                given = inner(*args, **named)
            finally:
                self._turn()
                self.running.pop()
            for frame in _frames(given):
                spent.rows += frame.height
                spent.size += frame.estimated_size()
            return given

        return timed


def _frames(given: Any) -> list[pl.DataFrame]:
    """The frames among what a stage gave back."""
    if isinstance(given, pl.DataFrame):
        return [given]
    if isinstance(given, msgspec.Struct):
        values: Sequence[Any] = msgspec.structs.astuple(given)
    elif isinstance(given, dict):
        values = list(given.values())
    else:
        values = list(given) if isinstance(given, tuple | list) else []
    return [value for value in values if isinstance(value, pl.DataFrame)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one table (Markdown)."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks stages", description=__doc__)
    parser.add_argument("--archive", type=Path, help="transcripts (a folder), not made ones")
    parser.add_argument("--size", type=float, default=300, help="MB to make")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="traffic")
    options = parser.parse_args(arguments)
    clock = Clock()
    for stage, module, names in STAGES:
        for name in names:
            setattr(module, name, clock.around(stage, getattr(module, name)))
    with tempfile.TemporaryDirectory() as folder:
        archive = options.archive
        if archive is None:
            archive = Path(folder) / "archive"
            generate(archive, size=int(options.size * 1e6), shape=options.shape)
        begin = time.process_time()
        summary = run.score([archive], out=Path(folder) / "store", jobs=1)
        whole = time.process_time() - begin + IMPORTS
    rest = whole - IMPORTS - sum(each.cpu for each in clock.spent.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{summary.files} files, {summary.bytes / 1e6:,.0f} MB, peak {peak:,.0f} MB\n")
    print("| stage | CPU s | share | rows out | MB out |\n|---|---|---|---|---|")
    rows = [("loading libraries and modules", Spent(IMPORTS)), *clock.spent.items()]
    for stage, spent in sorted(rows, key=lambda row: -row[1].cpu):
        out = f"{spent.rows:,} | {spent.size / 1e6:,.1f}" if spent.rows else " | "
        print(f"| {stage} | {spent.cpu:.2f} | {spent.cpu / whole:.0%} | {out} |")
    print(f"| everything else | {rest:.2f} | {rest / whole:.0%} |  |  |")
    print(f"| all | {whole:.2f} | 100% |  |  |")


if __name__ == "__main__":
    main()
