"""Finds transcripts and other programs' logs at the given paths."""

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mcptally.errors import UnreadableError
from mcptally.importers.detect import TRANSCRIPT, detect_format, is_damaged, why_unknown
from mcptally.importers.registry import FORMATS
from mcptally.plural import count
from mcptally.store.source_files import file_state
from mcptally.transcript.discover import REVIEWS, SkippedFile, files_below, pattern_matches
from mcptally.transcript.format import SUFFIXES
from mcptally.transcript.remote import not_found

PATTERNS: Final = tuple(
    sorted({"*.jsonl"}.union(*(form.names for form in FORMATS.values()))),
)
"""Patterns for names of files that may be transcripts or logs; .gz and .zst may be appended."""
_NAMES: Final = tuple(
    f"{pattern}{suffix}" for pattern in PATTERNS for suffix in ("", ".gz", ".zst")
)
_PARTIAL: Final = (".part", "-wal", "-shm")

FileEntry = tuple[tuple[int, ...], str]
"""A file's state (`FileState.identity`) and format."""


@dataclasses.dataclass(slots=True)
class Inputs:
    """The files to read, and the files to skip."""

    transcripts: list[Path] = dataclasses.field(default_factory=list)
    logs: list[Path] = dataclasses.field(default_factory=list)
    skipped: list[SkippedFile] = dataclasses.field(default_factory=list)
    files: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Maps the path of each file to read to its `FileEntry`."""
    unknown: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Maps the path of each skipped file in an unknown format to its state and the reason."""
    other_names: list[str] = dataclasses.field(default_factory=list)
    """Files in folders that were not opened, because their names match no format."""
    reviews: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Maps the paths of the folders' files with answers from `mcptally review` to their states."""
    are_stable: bool = True
    """Whether any later change to a file also changes the file's state."""

    @property
    def logs_state(self) -> dict[str, Any]:
        """Those entries of `files` that are about logs."""
        return {str(path): self.files[str(path)] for path in self.logs}


def find_inputs(paths: Sequence[Path], cache: Path, known: Mapping[str, Any]) -> Inputs:
    """Find the files at `paths`, and divide them into transcripts and logs.

    In folders, files whose names match no pattern are not opened, and files in unknown formats are
    skipped. A file that is named explicitly is always read.

    Args:
        paths: files, folders and patterns.
        cache: the folder of all caches, whose files are not inputs.
        known: the previous run's result; unchanged files in `files` and `unknown` are not opened.

    Raises:
        UnreadableError: a path does not exist, or no file can be read.
    """
    found = Inputs()
    files, unknown = known.get("files", {}), known.get("unknown", {})
    for path, is_named in _files(paths, found.skipped):
        if not is_named and cache in path.absolute().parents:
            continue
        if not is_named and path.name == REVIEWS:
            found.reviews[str(path)] = list(file_state(path).identity)
        elif not is_named and not _fits(path):
            found.other_names.append(str(path))
        elif not is_named and (entry := unknown.get(str(path))) and _has_state(path, entry[0]):
            _skip(found, path, entry[1])
        else:
            _add(found, path, files.get(str(path)), is_named=is_named)
    if not found.files:
        raise UnreadableError(
            f"{', '.join(map(str, paths))}: no transcripts, and no logs of a known format "
            f"(mcptally import --help lists them){_first_skipped(found)}"
        )
    return found


def _first_skipped(found: Inputs) -> str:
    """Name the first few skipped files in words, for an error message."""
    more = len(found.skipped) - 3
    named = [f"; skipped: {one.name}: {one.why}" for one in found.skipped[:3]]
    others = len(found.other_names)
    return "".join(
        [
            *named,
            f"; and {count(more, 'more file')}" if more > 0 else "",
            f"; {count(others, 'file')} not opened because of the name, first "
            f"{found.other_names[0]} (looked for {', '.join(PATTERNS)})"
            if others
            else "",
        ]
    )


def _files(paths: Iterable[Path], skipped: list[SkippedFile]) -> Iterable[tuple[Path, bool]]:
    """Yield each file once, with True if a path or a pattern in `paths` names it."""
    seen: set[Path] = set()
    for path in paths:
        for root in [path] if _exists(path) else sorted(pattern_matches(path)):
            if root.is_dir():
                names = files_below(root, skipped, ("",))
                pairs = [(file, False) for file in sorted(map(Path, names))]
            elif root.is_file():
                pairs = [(root, True)]
            else:
                raise UnreadableError(f"{root}: is neither a file nor a folder")
            for file, is_named in pairs:
                if file.absolute() not in seen:
                    seen.add(file.absolute())
                    yield file, is_named
            seen.add(root.absolute())
        if not _exists(path) and path.absolute() not in seen and not any(pattern_matches(path)):
            raise not_found(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from error


def _fits(path: Path) -> bool:
    name = path.name
    return not name.endswith(_PARTIAL) and any(fnmatch.fnmatchcase(name, one) for one in _NAMES)


def _has_state(path: Path, identity: Sequence[int]) -> bool:
    return file_state(path).identity == tuple(identity)


def _skip(found: Inputs, path: Path, why: str) -> None:
    """Add a file in an unknown format to the skipped files."""
    found.skipped.append(SkippedFile(str(path), why))
    found.unknown[str(path)] = [list(file_state(path).identity), why]


def _add(found: Inputs, path: Path, known: Sequence[Any] | None, *, is_named: bool) -> None:
    """Add a file to the transcripts, logs or skipped files."""
    identity, is_stable = file_state(path)
    if known is not None and tuple(known[0]) == identity:
        form: str | None = known[1]
    else:
        try:
            form = detect_format(path)
        except UnreadableError as error:
            if is_named:
                raise
            found.skipped.append(SkippedFile(str(path), str(error)))
            return
    if form is None and path.name.endswith(SUFFIXES) and (is_named or is_damaged(path)):
        form = TRANSCRIPT  # scoring reports the problem
    if form is None:
        if is_named:
            raise UnreadableError(
                f"{path}: unknown format: {why_unknown(path)}; mcptally import --help lists the "
                "known ones"
            )
        _skip(found, path, f"unknown format: {why_unknown(path)}")
        return
    (found.transcripts if form == TRANSCRIPT else found.logs).append(path)
    found.files[str(path)] = [list(identity), form]
    found.are_stable &= is_stable
