"""Finds transcripts and other programs' logs at the given paths."""

import dataclasses
import fnmatch
import os
import re
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
_NAMES: Final = re.compile(
    "|".join(fnmatch.translate(f"{one}{end}") for one in PATTERNS for end in ("", ".gz", ".zst"))
)
_PARTIAL: Final = (".part", "-wal", "-shm")


@dataclasses.dataclass(slots=True)
class Inputs:
    """The files to read, and the files to skip."""

    transcripts: list[str] = dataclasses.field(default_factory=list)
    logs: list[Path] = dataclasses.field(default_factory=list)
    skipped: list[SkippedFile] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    """Maps the path of each file to read to its state (`FileState.identity`) and format, as one
    text, because there may be many files."""
    bytes: int = 0
    """Total size of these files."""
    unknown: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Maps the path of each skipped file in an unknown format to its state and the reason."""
    other_names: list[str] = dataclasses.field(default_factory=list)
    """Files in folders that were not opened, because their names match no format."""
    reviews: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Maps the paths of the folders' files with answers from `mcptally review` to their states."""
    are_stable: bool = True
    """Whether any later change to a file also changes the file's state."""

    @property
    def logs_state(self) -> dict[str, str]:
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
    for file, is_named in _files(paths, cache, found.skipped):
        name = file.rpartition(os.sep)[2]
        if not is_named and name == REVIEWS:
            found.reviews[file] = list(file_state(file).identity)
        elif not is_named and not _fits(name):
            found.other_names.append(file)
        elif not is_named and (entry := unknown.get(file)) and _has_state(file, entry[0]):
            _skip(found, file, entry[1])
        else:
            _add(found, file, files.get(file, ""), is_named=is_named)
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


def _files(
    paths: Iterable[Path], cache: Path, skipped: list[SkippedFile]
) -> Iterable[tuple[str, bool]]:
    """Yield the name of each file once, with True if a path or a pattern in `paths` names it."""
    seen: set[str] = set()
    here, cached = str(Path.cwd() / "_")[:-1], f"{cache}{os.sep}"
    for path in paths:
        for root in [path] if _exists(path) else sorted(pattern_matches(path)):
            is_named = not root.is_dir()
            if not is_named:
                # Names, not paths: making 100,000 paths takes longer than finding the files.
                names = sorted(files_below(root, skipped, ("",)), key=lambda name: name.split("/"))
            elif root.is_file():
                names = [str(root)]
            else:
                raise UnreadableError(f"{root}: is neither a file nor a folder")
            for name in names:
                absolute = name if name.startswith(os.sep) else here + name
                if absolute not in seen and (is_named or not absolute.startswith(cached)):
                    seen.add(absolute)
                    yield name, is_named
            seen.add(str(root.absolute()))
        if (
            not _exists(path)
            and str(path.absolute()) not in seen
            and not any(pattern_matches(path))
        ):
            raise not_found(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from error


def _fits(name: str) -> bool:
    return name.endswith(SUFFIXES) or (
        not name.endswith(_PARTIAL) and _NAMES.match(name) is not None
    )


def _has_state(file: str, identity: Sequence[int]) -> bool:
    return file_state(file).identity == tuple(identity)


def _skip(found: Inputs, file: str, why: str) -> None:
    """Add a file in an unknown format to the skipped files."""
    found.skipped.append(SkippedFile(file, why))
    found.unknown[file] = [list(file_state(file).identity), why]


def _add(found: Inputs, file: str, known: str, *, is_named: bool) -> None:
    """Add a file to the transcripts, logs or skipped files."""
    identity, is_stable = file_state(file)
    state, _, form = known.rpartition(" ")
    if state != (now := " ".join(map(str, identity))):
        path = Path(file)
        try:
            detected = detect_format(path)
        except UnreadableError as error:
            if is_named:
                raise
            found.skipped.append(SkippedFile(file, str(error)))
            return
        if detected is None and file.endswith(SUFFIXES) and (is_named or is_damaged(path)):
            detected = TRANSCRIPT  # scoring reports the problem
        if detected is None:
            why = f"unknown format: {why_unknown(path)}"
            if is_named:
                raise UnreadableError(f"{file}: {why}; mcptally import --help lists the known ones")
            _skip(found, file, why)
            return
        form = detected
    if form == TRANSCRIPT:
        found.transcripts.append(file)
    else:
        found.logs.append(Path(file))
    found.files[file] = f"{now} {form}"
    found.bytes += identity[0]
    found.are_stable &= is_stable
