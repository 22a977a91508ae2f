"""Yields the elements of an array in a JSON document without loading the whole document.

Only brackets and strings are parsed; each element is returned as bytes, which may be invalid JSON.
Memory is bounded by the largest element. Time is linear in the length, at any nesting depth.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mcptally.transcript.files import MAX_LINE

_MARK: Final = re.compile(rb'["{}\[\],]')
_IN_STRING: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_MAX_KEY: Final = 256


class Element(NamedTuple):
    """An element of the array: an object and the number of its line."""

    line: int
    """Number of the line on which the object starts, from 1."""
    data: bytes | None
    """The object's bytes; None if the object exceeds `MAX_LINE`, or if the document ends within
    it."""


def elements(pieces: Iterable[bytes], path: tuple[str, ...]) -> Iterator[Element]:
    """Yield the objects in the array at `path`, which is a sequence of member names.

    If the document ends within an object, the last element has no data.
    """
    scan = _ArrayScanner(path)
    for piece in pieces:
        yield from scan.feed(piece)
    yield from scan.end()


class _ArrayScanner:
    """Finds the array and its elements in consecutive pieces of the document."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = [name.encode() for name in path]
        self._buffer = bytearray()
        self._position = 0
        self._line = 1
        self._counted = 0
        self._depth = 0
        self._keys: list[bytes] = []
        """Names of the enclosing members; at most one name more than `path` has."""
        self._deeper = 0
        self._last = b""
        self._string: int | None = None
        self._inside: int | None = None
        """Depth of the array's elements while inside the array, else None."""
        self._start: int | None = None
        self._start_line = 0
        self._too_large = False

    def feed(self, chunk: bytes) -> Iterator[Element]:
        self._drop()
        self._buffer += chunk
        buffer = self._buffer
        while True:
            if self._string is not None:
                match = _IN_STRING.match(buffer, self._position)
                end = match.end() if match else self._position
                self._position = end
                if end >= len(buffer) or buffer[end] != 0x22:
                    return
                if self._inside is None and end - self._string <= _MAX_KEY:
                    self._last = bytes(buffer[self._string : end])
                self._string = None
                self._position = end + 1
                continue
            mark = _MARK.search(buffer, self._position)
            if mark is None:
                self._position = len(buffer)
                return
            self._position = mark.end()
            yield from self._mark(mark[0], mark.start())

    def _mark(self, mark: bytes, place: int) -> Iterator[Element]:
        if mark == b'"':
            self._string = self._position
        elif mark in b"{[":
            if self._inside is None:
                # This is the array at `path` if its name and the enclosing names match.
                if mark == b"[" and [*self._keys, self._last][1:] == self._path:
                    self._inside = self._depth + 1
                if len(self._keys) > len(self._path):
                    self._deeper += 1
                else:
                    self._keys.append(self._last if self._depth else b"")
                self._last = b""
            elif self._depth == self._inside and mark == b"{":
                self._start, self._start_line = place, self._at(place)
            self._depth += 1
        elif mark in b"}]":
            self._depth -= 1
            if self._inside is not None and self._depth < self._inside:
                self._inside = None
                self._keys = self._keys[: max(self._depth, 0)]
            elif self._inside is None:
                if self._deeper:
                    self._deeper -= 1
                elif self._keys:
                    self._keys.pop()
            elif self._depth == self._inside and self._start is not None:
                whole = None if self._too_large else self._buffer[self._start : self._position]
                yield Element(self._start_line, None if whole is None else bytes(whole))
                self._start, self._too_large = None, False

    def end(self) -> Iterator[Element]:
        if self._start is not None:
            yield Element(self._start_line, None)

    def _at(self, place: int) -> int:
        self._line += self._buffer.count(b"\n", self._counted, place)
        self._counted = place
        return self._line

    def _drop(self) -> None:
        """Drop the parsed part of the buffer, except an incomplete element or key."""
        keep = self._position
        if self._start is not None:
            if self._position - self._start <= MAX_LINE:
                keep = self._start
            else:
                self._too_large, self._start = True, self._position
        elif self._string is not None and keep - self._string <= _MAX_KEY:
            keep = self._string
        self._at(keep)
        del self._buffer[:keep]
        self._position -= keep
        self._counted = 0
        if self._start is not None:
            self._start -= keep
        if self._string is not None:
            self._string -= keep
