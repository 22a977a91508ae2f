"""Declares how a writer reports the rows that it could not write in full."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mcptally.plural import count

NO_TIME: Final = "calls without a time"
"""Reason why HAR and OTLP omit a row: every entry and span needs a start time."""


class Written(NamedTuple):
    """How many rows were omitted or cut."""

    left_out: Mapping[str, int] = {}
    """Maps each reason to the number of rows omitted for it."""
    cut: int = 0
    """Number of rows with texts that were cut, because most CSV readers reject longer lines."""

    @property
    def notes(self) -> list[str]:
        """Return messages for the user: one per kind of loss."""
        notes = [
            f"{count(n, 'row')} left out: {reason}" for reason, n in self.left_out.items() if n
        ]
        if self.cut:
            notes.append(
                f"{count(self.cut, 'row')} with texts cut, because readers of CSV refuse lines "
                "above 2 MB; parquet, json and jsonl have the whole texts"
            )
        return notes
