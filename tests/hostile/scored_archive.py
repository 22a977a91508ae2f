"""Scores and checks an archive that has hostile files and one innocent recording."""

import dataclasses
import json
from pathlib import Path

import polars as pl

import mcptally as mt
from mcptally.transcript.check import ArchiveCheck, check
from tests.transcripts import call, event, exchange, opened, text, write

GOOD = "innocent"


def recording(name: str = "r1", *, words: str = "fine", **about: object) -> bytes:
    """The lines of a recording of one call."""
    talk = exchange(call(1), text(1, words), recording=name)
    events = [opened(name, **about), *talk, event("close", 3, name, reason="eof")]
    return b"".join(json.dumps(one).encode() + b"\n" for one in events)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The store and the result of `check` for one archive."""

    store: Path
    check: ArchiveCheck

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.store / name / "*.parquet")

    @property
    def rules(self) -> set[str]:
        return set(self.table("findings").get_column("rule"))

    @property
    def said(self) -> str:
        """Return all problems that `check` reports."""
        problems = [p for file in self.check.damaged_files for p in file.problems]
        return "\n".join([*problems, *(p for r in self.check.recordings for p in r.problems)])

    def calls(self, recording: str) -> list[str]:
        calls = self.table("calls")
        return calls.filter(pl.col("recording") == recording).get_column("outcome").to_list()


def judged(folder: Path, **options: object) -> Outcome:
    """Add the innocent recording to `folder/archive`, then score and check the archive.

    Asserts that the innocent recording is intact and that no file outside the store is written.
    """
    archive = folder / "archive"
    archive.mkdir(exist_ok=True)
    write(archive / "innocent.jsonl", [recording(GOOD)])
    before = _everything(folder)
    mt.score(archive, out=folder / "store", **options)  # type: ignore[arg-type]
    outcome = Outcome(folder / "store", check([archive]))
    after = _everything(folder)
    assert {p for p in after - before if folder / "store" not in (p, *p.parents)} == set()
    assert outcome.calls(GOOD) == ["ok"]
    assert [r.verdict for r in outcome.check.recordings if r.recording == GOOD] == ["whole"]
    return outcome


def _everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
