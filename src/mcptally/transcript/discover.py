"""Finds transcript files, given files, folders and patterns, and reports skipped files."""

import contextlib
import errno
import glob
import operator
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.errors import UnreadableError
from mcptally.transcript.format import JOURNAL_SUFFIX, SUFFIXES
from mcptally.transcript.remote import not_found

REVIEWS: Final = "reviews.jsonl"
"""Name of the file with reviewers' answers, next to an archive. It is never read as a
transcript."""


class SkippedFile(msgspec.Struct, frozen=True):
    """A skipped file: it was found in a folder or matches a pattern."""

    name: str
    """The file's path, with bytes that are not UTF-8 replaced."""
    why: str
    """Why the file is not read."""


def discover(
    paths: Iterable[str | Path], passed_over: Callable[[SkippedFile], Any] = lambda _: None
) -> list[str]:
    """Return the names of the transcript files at `paths`, sorted, without repetition.

    A folder stands for its `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst` files at any depth; links out
    of the folder are not followed. A pattern stands for its matches. A file that is named
    explicitly is always read, unless it has the name of the file with reviewers' answers.

    Args:
        paths: files, folders and patterns.
        passed_over: called with each skipped file.

    Raises:
        UnreadableError: a path is empty, does not exist, is not a regular file, cannot be listed or
            has a name that is not UTF-8; a pattern is invalid; or no file was found.
    """
    given = list(paths)
    if "" in given:  # such as an unset shell variable; `Path("")` would be the working directory
        raise UnreadableError("a path is empty; the current folder is called .")
    # Names, not paths: making 100,000 paths takes longer than finding the files.
    named = {name: _type_of(name) for name in map(_normalized, given)}
    out: list[SkippedFile] = []
    files = (name for name, kind in named.items() if kind != stat.S_IFDIR)
    for folder in {name[: name.rfind(os.sep) + 1] for name in files}:
        _finish_journals(Path(folder), out)
    found = dict.fromkeys(
        file
        for name, kind in named.items()
        for file in _files_of(name, kind, out)
        if not file.endswith(REVIEWS) or Path(file).name != REVIEWS
    )
    for each in out:
        passed_over(each)
    if not found:
        places = ", ".join(named) or "nothing"
        seen = f"; skipped: {out[0].name}: {out[0].why}" if out else ""
        raise UnreadableError(
            f"{places}: no transcripts found "
            f"(looked for {', '.join('*' + s for s in SUFFIXES)}){seen}"
        )
    return sorted(found)


def path_of(file: str | Path) -> Path:
    """Return the path of a file of an archive, given its name; a `RemoteFile` stays the same."""
    return Path(file) if isinstance(file, str) else file


def _files_of(name: str, kind: int | None, out: list[SkippedFile]) -> Iterator[str]:
    """Yield the files that one name stands for; append skipped files to `out`."""
    if kind == stat.S_IFDIR:
        yield from files_below(Path(name), out)
    elif kind == stat.S_IFREG:
        if not _is_utf8(name):
            raise UnreadableError(f"{_printable(name)}: {_NAME_NOT_UTF8}")
        yield name
    elif kind is not None:
        raise UnreadableError(f"{name}: is not a regular file; name a transcript or a folder")
    else:
        matches = sorted(pattern_matches(Path(name)))
        if not matches:
            raise not_found(Path(name))
        for match in matches:
            if match.is_dir():
                yield from files_below(match, out)
            elif _is_utf8(str(match)):
                yield str(match)
            else:
                out.append(SkippedFile(_printable(match), _NAME_NOT_UTF8))


def _type_of(name: str) -> int | None:
    """Return the file type at a path, such as `stat.S_IFDIR`; None if nothing is there.

    Raises:
        UnreadableError: the system refuses the path (it is too long or contains a NUL).
    """
    try:
        return stat.S_IFMT(os.stat(name).st_mode)  # noqa: PTH116  (of every file)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _MISSING:
            return None
        raise UnreadableError(f"{name}: {describe_error(error)}") from error


_MISSING: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _normalized(path: str | Path) -> str:
    """Return the text of a path, as `Path` normalises it."""
    if isinstance(path, str) and os.path.normpath(path) == path:  # a tenth of the time
        return path
    return str(Path(path))


def pattern_matches(pattern: Path) -> Iterator[Path]:
    """Yield a pattern's matches; `**` does not follow links to folders: they may form cycles."""
    parts = pattern.parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if fixed < len(parts):
        try:
            yield from Path(*parts[:fixed]).glob(str(Path(*parts[fixed:])))
        except ValueError as error:  # the pattern is invalid, such as `**` next to other characters
            raise UnreadableError(f"{pattern}: {error}") from error


def files_below(
    folder: Path, out: list[SkippedFile], suffixes: tuple[str, ...] = SUFFIXES
) -> Iterator[str]:
    """Yield the names of the files in a folder, at any depth, that end with one of `suffixes`.

    Links out of the folder are not followed. Skipped files are appended to `out`.

    Raises:
        UnreadableError: a folder cannot be listed.
    """
    # Loop instead of recursing: folders may be nested deeper than Python's recursion limit.
    root = folder.resolve()
    todo = [folder]
    while todo:
        here = todo.pop()
        inside = str(here / "_")[:-1]
        for entry in _entries(here, out):
            name = inside + entry.name
            is_named = entry.name.endswith(suffixes)
            if is_named and entry.is_file(follow_symlinks=False) and _is_utf8(name):
                yield name
            elif entry.is_dir(follow_symlinks=False):
                todo.append(Path(name))
            elif why := _why_skipped(entry, name, root, suffixes):
                out.append(SkippedFile(_printable(name), why))
            # Skip a link to a file in the same folder, because the file itself is read.
            elif is_named and not Path(name).resolve().name.endswith(suffixes):
                yield name


def _entries(folder: Path, out: list[SkippedFile]) -> list[os.DirEntry[str]]:
    """List a folder, after `_finish_journals`, if there are any."""
    try:
        entries = list(os.scandir(folder))
        if any(entry.name.endswith(JOURNAL_SUFFIX) for entry in entries):
            _finish_journals(folder, out)
            entries = list(os.scandir(folder))
        return sorted(entries, key=operator.attrgetter("name"), reverse=True)
    except OSError as error:
        raise UnreadableError(f"{folder}: cannot be listed: {error.strerror}") from error


def _finish_journals(folder: Path, out: list[SkippedFile]) -> None:
    """Write the events that killed recorders left in a folder, and report failures."""
    with contextlib.suppress(OSError, ValueError):  # `_files_of` reports paths that cannot be read
        if any(folder.glob(f"*{JOURNAL_SUFFIX}")):
            # Imported late: journals are rare.
            from mcptally.transcript.writer.recovery import finish_journals  # noqa: PLC0415

            for path, why in finish_journals(str(folder)):
                out.append(SkippedFile(_printable(path), why))


def _why_skipped(
    entry: os.DirEntry[str], name: str, root: Path, suffixes: tuple[str, ...]
) -> str | None:
    """Return why a folder entry is skipped; None if it is read or need not be reported."""
    is_named = entry.name.endswith(suffixes)
    if entry.is_symlink() and not _within(Path(name), root):
        is_skipped = is_named or _leads_to(entry, os.DirEntry.is_dir)
        return "leads out of the folder; to read it, pass this path, too" if is_skipped else None
    if not is_named:
        return None
    if not _leads_to(entry, os.DirEntry.is_file):
        return "not a regular file"
    return None if _is_utf8(name) else _NAME_NOT_UTF8


_NAME_NOT_UTF8: Final = "its name is not UTF-8, which tables cannot store; rename it"


def _is_utf8(name: str) -> bool:
    return name.isascii() or _printable(name) == name


def _printable(path: str | Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _within(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link to itself
        return True


def _leads_to(entry: os.DirEntry[str], what: Callable[[os.DirEntry[str]], bool]) -> bool:
    """Return whether the entry, or its target if the entry is a link, passes the test `what`."""
    try:
        return what(entry)
    except OSError:  # a link to itself
        return False


def describe_error(error: Exception) -> str:
    """Return the message of an error, without the file's name."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
