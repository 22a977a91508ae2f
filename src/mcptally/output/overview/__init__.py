"""Summarizes recordings and logs: imports them, scores them, and keeps store and answer in a cache.

    inputs → cache → (import, score, answer) → screen → page

May import the same folders as `output`, and the modules of `output` below it. If neither the inputs
nor the program have changed, the cached answer is returned without importing large modules.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mcptally.errors import UnreadableError, UsageError, as_argument
from mcptally.output.overview import cache
from mcptally.output.overview.inputs import Inputs, find_inputs
from mcptally.transcript.unread import in_words

_SHOWN: Final = 5
"""Number of findings in the cached answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Overview:
    """The result of `overview`: a summary, and the paths of the store and the report."""

    folder: Path
    """The folder of the cache."""
    answer: Mapping[str, Any]
    """The numbers and texts of the summary; recorded texts are masked and on one line.

    `skipped` contains each skipped file's path and the reason; `other_names` contains the files in
    folders that were not opened because of their names."""

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self.folder / cache.STORE

    @property
    def page(self) -> Path:
        """The report's path."""
        return self.folder / cache.PAGE


def overview(
    paths: Iterable[str | Path],
    *,
    most: int = _SHOWN,
    filters: Mapping[str, Any] = MappingProxyType({}),
    progress: Callable[[int, int], None] = lambda *_: None,
    on_wait: Callable[[], None] = lambda: None,
    on_answer: Callable[[Overview], None] = lambda _: None,
) -> Overview:
    """Import, score and summarize recordings and logs.

    If another process is computing the answer for the same paths, the function waits for it.

    Args:
        paths: files, folders and patterns of transcripts or of logs that `import` can read.
        most: maximum number of findings; 0 means all.
        filters: filters for calls, as in `Store.ask`.
        progress: called with the number of bytes scored so far and with the total.
        on_wait: called before waiting for another process.
        on_answer: called with the result when it is known; without filters, before the report is
            written.

    Raises:
        UnreadableError: none of the paths can be read.
        UsageError: a path is a store, a filter is invalid, or the cache cannot be used.
    """
    given_filters = {name: value for name, value in filters.items() if value is not None}
    if most == _SHOWN and not given_filters:
        return _overview(paths, progress, on_wait, on_answer)
    whole = _overview(paths, progress, on_wait, lambda _: None)
    # These imports load polars, pyarrow and DuckDB.
    from mcptally.analytics.store import open_store  # noqa: PLC0415
    from mcptally.output.html.answers import Asked  # noqa: PLC0415
    from mcptally.output.overview.answer import answer_of  # noqa: PLC0415

    asked = Asked(open_store(whole.store), given_filters)
    found = dataclasses.replace(whole, answer={**whole.answer, **answer_of(asked, most=most)})
    on_answer(found)
    return found


def _overview(
    paths: Iterable[str | Path],
    progress: Callable[[int, int], None],
    on_wait: Callable[[], None],
    on_answer: Callable[[Overview], None],
) -> Overview:
    """Return the overview of all calls, with `_SHOWN` findings, from the cache if possible."""
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
    # A different version of the program may support more formats.
    known = earlier if earlier.get("program") == program else {}
    inputs = find_inputs(given, root, known)
    state: dict[str, Any] = {
        "program": program,
        "files": inputs.files,
        "reviews": inputs.reviews,
    }
    if inputs.are_stable and cache.is_current(folder, earlier, state):
        if earlier.get("unknown") != inputs.unknown:
            cache.write(folder, earlier | {"unknown": inputs.unknown})
        cache.touch(folder)
        return _known(folder, earlier, inputs, on_answer)
    cache.create(root, folder)
    with cache.locked(folder, on_wait):
        earlier = cache.read(folder)
        # Another process may have computed the answer in the meantime.
        if inputs.are_stable and cache.is_current(folder, earlier, state):
            return _known(folder, earlier, inputs, on_answer)
        found = _answer_anew(folder, inputs, state, earlier, progress, on_answer)
        cache.sweep(root, keep=folder)
    return found


def _known(
    folder: Path,
    state: Mapping[str, Any],
    inputs: Inputs,
    on_answer: Callable[[Overview], None],
) -> Overview:
    """Return the overview that an earlier run has stored in the cache."""
    skipped = [msgspec.structs.astuple(file) for file in inputs.skipped]
    others = {"skipped": skipped, "other_names": inputs.other_names}
    found = Overview(folder, state["answer"] | others)
    on_answer(found)
    return found


def _answer_anew(
    folder: Path,
    inputs: Inputs,
    state: dict[str, Any],
    earlier: Mapping[str, Any],
    progress: Callable[[int, int], None],
    on_answer: Callable[[Overview], None],
) -> Overview:
    """Compute the answer, write the report, and store the answer in the cache."""
    # These imports load polars, pyarrow and DuckDB.
    from mcptally.analytics.store import open_store  # noqa: PLC0415
    from mcptally.output.html import page_text, write_page  # noqa: PLC0415
    from mcptally.output.html.answers import Asked  # noqa: PLC0415
    from mcptally.output.overview.answer import answer_of  # noqa: PLC0415

    same_logs = earlier.get("logs") == inputs.logs_state and (folder / cache.IMPORTED).is_dir()
    if not same_logs:
        # Remove the state, so that the next run imports the logs again if this run is killed.
        cache.forget(folder)
    counts = _score(folder, inputs, earlier, same_logs=same_logs, progress=progress)
    asked = Asked(open_store(folder / cache.STORE))
    answer = answer_of(asked, most=_SHOWN) | counts
    state |= {"unknown": inputs.unknown, "logs": inputs.logs_state, "answer": answer}
    found = _known(folder, state, inputs, on_answer)
    found.page.unlink(missing_ok=True)
    write_page(page_text(asked, whole=False), found.page)
    cache.write(folder, state | {"store": cache.mark(folder)})
    return found


def _score(
    folder: Path,
    inputs: Inputs,
    earlier: Mapping[str, Any],
    *,
    same_logs: bool,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Import the logs and score everything; return how many inputs of each kind there are."""
    imported = folder / cache.IMPORTED
    if same_logs:
        unused = earlier["answer"]["unused_lines"]
    else:
        unused = cache.import_logs_anew(imported, inputs.logs)
    archive = [*inputs.transcripts, *map(str, sorted(imported.glob("*.jsonl*")))]
    if not archive:
        names = ", ".join(str(path) for path in inputs.logs[:3])
        raise UnreadableError(f"no MCP traffic was found in {names}")
    from mcptally.pipeline.engines import local_engine  # noqa: PLC0415
    from mcptally.store.manifest import MANIFEST  # noqa: PLC0415

    store = folder / cache.STORE
    engine = "local" if (store / MANIFEST).exists() else local_engine(archive, jobs=0)
    from mcptally.pipeline.run import score  # noqa: PLC0415

    summary = score(archive, out=store, engine=engine, progress=progress)
    return {
        "transcripts": len(inputs.transcripts),
        "logs": len(inputs.logs),
        "bytes": inputs.bytes,
        "unread": in_words(summary.unread, names=True),
        "unused_lines": unused,
    }
