"""The state of each recording in memory that the recorder shares with the writer process."""

import marshal
import mmap
from typing import Any, Final

SLOTS: Final = 8192
"""Most recordings whose state is kept, by default."""

_HALF: Final = 512
_SLOT: Final = 2 * _HALF


class ProgressTable:
    """One value per recording; if a process dies while saving one, the previous value stays."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots: Final = slots
        self._memory = mmap.mmap(-1, max(1, slots * (_SLOT + 1)))

    def save(self, slot: int, number: int, value: tuple[Any, ...]) -> None:
        """Save the value of recording `number`, which currently uses this slot."""
        data = marshal.dumps((number, value))
        if slot >= self._slots or len(data) > _HALF:
            return
        current = self._slots * _SLOT + slot
        half = 1 - self._memory[current]
        start = slot * _SLOT + half * _HALF
        self._memory[start : start + len(data)] = data
        self._memory[current] = half

    def load(self, slot: int, number: int) -> tuple[Any, ...] | None:
        """The value of recording `number`; None if none was saved."""
        if slot >= self._slots:
            return None
        start = slot * _SLOT + self._memory[self._slots * _SLOT + slot] * _HALF
        data = self._memory[start : start + _HALF]
        if not any(data):
            return None
        saved_number, value = marshal.loads(data)  # noqa: S302 - written by `save` only
        return value if saved_number == number else None
