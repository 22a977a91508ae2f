"""Saves the state of each recording in memory that outlives the writer process."""

import mmap
from typing import Any, Final, NamedTuple

import msgspec

SLOTS: Final = 8192
"""Default maximum number of recordings whose state is saved."""

SLOT_BYTES: Final = 4096

_LOST_AT: Final = 4
_LOST_BYTES: Final = 4
_HALF: Final = 512
_OPENING_AT: Final = 8 + 2 * _HALF
_LENGTH: Final = 2
"""Size in bytes of the length field before each value."""


class Opening(NamedTuple):
    """The values that all segments of a recording share."""

    recording: str
    """The recording's id."""
    stem: str
    """Prefix of its file names (`segment_stem`)."""
    began_ns: int
    fields: dict[str, Any]
    """The fields of its `open` events, after redaction."""


class Progress(NamedTuple):
    """The changing state that another process needs to continue a recording."""

    seq: int = 0
    segments: int = 0
    size: int = 0
    """Size of the last segment in bytes. The other numbers include only the lines within this
    size."""
    lost: int = 0
    unreported_lost: int = 0
    lost_reason: str = ""
    counts: dict[str, int] = {}  # noqa: RUF012 - never changed


class SavedRecording(NamedTuple):
    """The saved state from which another process can continue a recording."""

    slot: int
    number: int
    begun: int
    """The queue's `begun` after the last call whose effects `progress` includes."""
    progress: Progress
    opening: Opening


_OPENING_BYTES: Final = SLOT_BYTES - _OPENING_AT - _LENGTH

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_state: Final = msgspec.msgpack.Decoder(tuple[int, int, Progress]).decode
_decode_opening: Final = msgspec.msgpack.Decoder(tuple[int, Opening]).decode


class ProgressTable:
    """Stores one state per recording; if a process dies while saving, the previous state remains.

    A slot consists of the number of the current half, the number of lost events, two halves for the
    changing state, and the opening. An unused slot contains zeros. The recorder writes the number
    of lost events, the writer everything else.
    """

    def __init__(self, memory: mmap.mmap, start: int, slots: int = SLOTS) -> None:
        self._memory = memory
        self._start = start
        self._slots: Final = slots

    def open(self, slot: int, number: int, opening: Opening) -> None:
        """Use a slot for recording `number`; the caller must then call `save`."""
        if slot >= self._slots:
            return
        data = _encode((number, opening))
        if len(data) > _OPENING_BYTES:  # the command is too long, so later segments omit it
            fields = {name: opening.fields[name] for name in ("transport", "recorder", "redaction")}
            data = _encode((number, opening._replace(fields=fields)))
        self._put(self._at(slot) + _OPENING_AT, data)

    def save(self, slot: int, number: int, begun: int, progress: Progress) -> None:
        """Save the state of recording `number`, which currently uses this slot."""
        data = _encode((number, begun, progress))
        if slot >= self._slots or len(data) > _HALF - _LENGTH:
            return
        at = self._at(slot)
        half = 0 if self._memory[at] == 2 else 1  # write the half that is not current
        self._put(at + 8 + half * _HALF, data)
        self._memory[at] = half + 1

    def save_lost(self, slot: int, events: int) -> None:
        """Save how many events of a recording did not fit into the queue and are not reported."""
        if slot < self._slots:
            at = self._at(slot) + _LOST_AT
            self._memory[at : at + _LOST_BYTES] = events.to_bytes(_LOST_BYTES, "little")

    def lost(self, slot: int) -> int:
        """Return the number of events that `save_lost` saved last."""
        if slot >= self._slots:
            return 0
        at = self._at(slot) + _LOST_AT
        return int.from_bytes(self._memory[at : at + _LOST_BYTES], "little")

    def load(self, slots: int) -> list[SavedRecording]:
        """Return the recordings in the first `slots` slots.

        Raises:
            msgspec.DecodeError: another program wrote to the memory.
        """
        found = []
        for slot in range(min(slots, self._slots)):
            at = self._at(slot)
            if half := self._memory[at]:
                number, begun, progress = _decode_state(self._get(at + 8 + (half - 1) * _HALF))
                opened, opening = _decode_opening(self._get(at + _OPENING_AT))
                if opened == number:
                    found.append(SavedRecording(slot, number, begun, progress, opening))
        return found

    def forget(self, slot: int) -> None:
        """Mark the slot of a complete recording as unused."""
        if slot < self._slots:
            self._memory[self._at(slot)] = 0

    def _at(self, slot: int) -> int:
        return self._start + slot * SLOT_BYTES

    def _put(self, at: int, data: bytes) -> None:
        self._memory[at : at + _LENGTH + len(data)] = len(data).to_bytes(_LENGTH, "little") + data

    def _get(self, at: int) -> bytes:
        length = int.from_bytes(self._memory[at : at + _LENGTH], "little")
        return self._memory[at + _LENGTH : at + _LENGTH + length]
