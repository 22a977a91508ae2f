"""Which files an archive is: what paths, folders and patterns name, and what is passed over."""

import dataclasses
import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from mcptally.errors import UnreadableError
from mcptally.transcript.format import SUFFIXES


@dataclasses.dataclass(frozen=True, slots=True)
class PassedOver:
    """Something that a folder or a pattern leads to, and that is not read."""

    name: str
    """Its path, as far as it is UTF-8."""
    why: str
    """Why it is not, in words."""


def discover(
    paths: Iterable[str | Path], passed_over: Callable[[PassedOver], Any] = lambda _: None
) -> list[Path]:
    """The transcript files that `paths` name, sorted, each once.

    A folder gives its `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst`, recursively, without following
    links out of it; a pattern gives what it matches; a file that is named is always taken.

    Args:
        paths: files, folders and patterns.
        passed_over: is told what has such a name, or is matched, and is not read, and why.

    Raises:
        UnreadableError: a path does not exist, is no regular file or no pattern, cannot be listed,
            has a name that is not UTF-8, or nothing was found.
    """
    named = [Path(path) for path in paths]
    found: dict[Path, None] = {}
    out: list[PassedOver] = []
    for path in named:
        if _path_is(path, Path.is_dir):
            found.update(dict.fromkeys(files_below(path, out)))
        elif _path_is(path, Path.exists):
            if not path.is_file():
                raise UnreadableError(f"{path}: is no regular file; name a transcript or a folder")
            if not _is_utf8_name(path):
                raise UnreadableError(f"{_printable_path(path)}: {_NAME_NOT_UTF8}")
            found[path] = None
        else:
            matches = sorted(_matches(path))
            if not matches:
                raise UnreadableError(f"{path}: no such file or folder")
            for match in matches:
                if match.is_dir():
                    found.update(dict.fromkeys(files_below(match, out)))
                elif _is_utf8_name(match):
                    found[match] = None
                else:
                    out.append(PassedOver(_printable_path(match), _NAME_NOT_UTF8))
    for each in out:
        passed_over(each)
    if not found:
        places = ", ".join(map(str, named)) or "nothing"
        seen = f"; passed over: {out[0].name}: {out[0].why}" if out else ""
        raise UnreadableError(
            f"{places}: no transcripts there "
            f"(looked for {', '.join('*' + s for s in SUFFIXES)}){seen}"
        )
    return sorted(found)


def _path_is(path: Path, what: Callable[[Path], bool]) -> bool:
    """What a path is; one that no system takes (too long, a NUL in it) is nothing."""
    try:
        return what(path)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {describe_error(error)}") from error


def _matches(pattern: Path) -> Iterator[Path]:
    """What a pattern matches. `**` goes through no links to folders: they may lead in circles."""
    parts = pattern.parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if fixed < len(parts):
        try:
            yield from Path(*parts[:fixed]).glob(str(Path(*parts[fixed:])))
        except ValueError as error:  # `**` beside other characters, for one
            raise UnreadableError(f"{pattern}: {error}") from error


def files_below(
    folder: Path, out: list[PassedOver], suffixes: tuple[str, ...] = SUFFIXES
) -> Iterator[Path]:
    """The files of a folder and those below whose names end so, without following links out of it.

    `out` is given what has such a name and is left out.

    Raises:
        UnreadableError: a folder cannot be listed.
    """
    # However deep: a loop, not a recursion.
    root = folder.resolve()
    todo = [folder]
    while todo:
        here = todo.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            raise UnreadableError(f"{here}: cannot be listed: {error.strerror}") from error
        for entry in entries:
            path = here / entry.name
            if entry.is_dir(follow_symlinks=False):
                todo.append(path)
            elif entry.is_symlink() and not _within(path, root):
                if entry.name.endswith(suffixes) or _leads_to_folder(entry):
                    out.append(
                        PassedOver(
                            _printable_path(path), "a link out of the folder; name it as well"
                        )
                    )
            elif entry.name.endswith(suffixes):
                if not path.is_file():
                    out.append(PassedOver(_printable_path(path), "no regular file"))
                elif not _is_utf8_name(path):
                    out.append(PassedOver(_printable_path(path), _NAME_NOT_UTF8))
                elif not entry.is_symlink() or not path.resolve().name.endswith(suffixes):
                    yield path  # (what another link within leads to is found by its own name)


_NAME_NOT_UTF8: Final = "its name is not UTF-8, and no table can hold it; rename it"


def _is_utf8_name(path: Path) -> bool:
    return _printable_path(path) == str(path)


def _printable_path(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _within(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link that leads to itself
        return True


def _leads_to_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def describe_error(error: Exception) -> str:
    """An error of the system in words, without the file's name."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
