"""Records which parts of a table a writer could not write."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mcptally.plural import count

NO_TIME: Final = "calls without a time"
"""Reason why HAR and OTLP leave out a row: every entry and span needs a start."""


class Written(NamedTuple):
    """Rows that a format cannot contain, or only in part."""

    left_out: Mapping[str, int] = {}
    """Reason → number of rows that were left out."""
    cut: int = 0
    """Number of rows with a cut text, because most CSV readers reject lines of this length."""

    @property
    def notes(self) -> list[str]:
        """Return messages for the user, one per kind of loss."""
        notes = [
            f"{count(n, 'row')} left out: {reason}" for reason, n in self.left_out.items() if n
        ]
        if self.cut:
            notes.append(
                f"{count(self.cut, 'row')} with texts cut, because readers of CSV refuse lines "
                "above 2 MB; parquet, json and jsonl have the whole texts"
            )
        return notes
