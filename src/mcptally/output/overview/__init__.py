"""Summarizes recordings and logs: imports and scores them into a cache, and keeps the answer.

    inputs → cache → (import, score, report, answer) → screen

May import what `output` may import, and the modules of `output` below it. If neither the inputs nor
the program changed, the kept answer is returned and nothing large is imported.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.errors import UnreadableError, UsageError, as_argument
from mcptally.output.overview import cache
from mcptally.output.overview.inputs import Inputs, find_inputs
from mcptally.transcript.unread import in_words

_SHOWN: Final = 5
"""The number of findings in an answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Overview:
    """The result of `overview`: a summary, and the places of the store and the page."""

    folder: Path
    """The folder of the cache."""
    answer: Mapping[str, Any]
    """The numbers and texts of the summary; recorded texts are masked and on one line.

    `skipped` has the path of each skipped file and why, `other_names` the files in folders that
    were not opened because of their names."""

    @property
    def store(self) -> Path:
        """The folder of the store."""
        return self.folder / cache.STORE

    @property
    def page(self) -> Path:
        """The file of the report."""
        return self.folder / cache.PAGE


def overview(
    paths: Iterable[str | Path],
    *,
    jobs: int = 0,
    progress: Callable[[int, int], None] = lambda *_: None,
    on_wait: Callable[[], None] = lambda: None,
) -> Overview:
    """Import and score recordings and logs, and summarize them.

    If another process does so for the same paths, wait for it and return its answer.

    Args:
        paths: files, folders and patterns of transcripts or of logs that `import` can read.
        jobs: processes to use at most; 0 means one per core.
        progress: called with the bytes of scoring done and in all.
        on_wait: called before waiting for another process.

    Raises:
        UnreadableError: none of the paths can be read.
        UsageError: a path is a store, or the cache cannot be used.
    """
    given = [Path(path) for path in paths]
    for path in given:
        if (path / "store.json").is_file():
            store = as_argument(path)
            raise UsageError(
                f"{path}: is a store; next: mcptally query {store} priorities, or mcptally report "
                f"{store} -o report.html"
            )
    root = cache.root()
    folder = cache.folder_of(root, given)
    earlier = cache.read(folder)
    program = cache.program_digest()
    # Another version of the program may know more formats.
    known = earlier if earlier.get("program") == program else {}
    inputs = find_inputs(given, root, known)
    skipped = {
        "skipped": [msgspec.structs.astuple(file) for file in inputs.skipped],
        "other_names": inputs.other_names,
    }
    state: dict[str, Any] = {"program": program, "files": inputs.files}
    if inputs.are_stable and cache.is_current(folder, earlier, state):
        if earlier.get("unknown") != inputs.unknown:
            cache.write(folder, earlier | {"unknown": inputs.unknown})
        cache.touch(folder)
        return Overview(folder, earlier["answer"] | skipped)
    cache.create(root, folder)
    with cache.alone_in(folder, on_wait):
        earlier = cache.read(folder)
        if inputs.are_stable and cache.is_current(folder, earlier, state):  # by another process
            return Overview(folder, earlier["answer"] | skipped)
        answer = _answer_anew(root, folder, inputs, state, earlier, jobs=jobs, progress=progress)
    return Overview(folder, answer | skipped)


def _answer_anew(
    root: Path,
    folder: Path,
    inputs: Inputs,
    state: dict[str, Any],
    earlier: Mapping[str, Any],
    *,
    jobs: int,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Compute the answer and keep it with the state."""
    same_logs = earlier.get("logs") == inputs.logs_state and (folder / cache.IMPORTED).is_dir()
    if not same_logs:
        cache.forget(folder)  # if this run is killed, the next one imports the logs again
    answer = _compute(folder, inputs, same_logs=same_logs, jobs=jobs, progress=progress)
    state |= {"unknown": inputs.unknown, "logs": inputs.logs_state, "answer": answer}
    cache.write(folder, state | {"store": cache.mark(folder)})
    cache.sweep(root, keep=folder)
    return answer


def _compute(
    folder: Path,
    inputs: Inputs,
    *,
    same_logs: bool,
    jobs: int,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Import the logs, score everything, write the page, and return the answer."""
    # These load polars, pyarrow and DuckDB.
    from mcptally.output.overview.answer import answer_of  # noqa: PLC0415
    from mcptally.pipeline.run import score  # noqa: PLC0415

    imported = folder / cache.IMPORTED
    if same_logs:
        lost = cache.read(folder)["answer"]["unused_lines"]
    else:
        lost = cache.import_logs_anew(imported, inputs.logs)
    archive = [*inputs.transcripts, *sorted(imported.glob("*.jsonl*"))]
    if not archive:
        names = ", ".join(str(path) for path in inputs.logs[:3])
        raise UnreadableError(f"no MCP traffic was found in {names}")
    summary = score(archive, out=folder / cache.STORE, jobs=jobs, progress=progress)
    found = answer_of(folder / cache.STORE, folder / cache.PAGE, most=_SHOWN)
    return found | {
        "transcripts": len(inputs.transcripts),
        "logs": len(inputs.logs),
        "bytes": sum(identity[0] for identity, _ in inputs.files.values()),
        "unread": in_words(summary.unread, names=True),
        "unused_lines": lost,
    }
