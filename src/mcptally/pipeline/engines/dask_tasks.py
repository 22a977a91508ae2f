"""Defines the Dask tasks of a run: gathering a partition, and finishing it.

When a worker dies, Dask repeats its tasks on another worker, so a task depends only on its
arguments. A gathered partition waits in the scratch folder of its worker; if the folder is gone,
the partition is gathered again.
"""

import contextlib
import dataclasses
import platform
import secrets
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl

import mcptally
from mcptally.errors import McptallyError, UnreadableError, UsageError
from mcptally.pipeline.engines.worker import (
    FinishSettings,
    GatherReport,
    Partition,
    SavedSlices,
    finish_and_write,
    gather_files,
    load_saved,
    save,
)
from mcptally.pipeline.partition import GatheredPartition
from mcptally.pipeline.partition_summary import PartitionSummary
from mcptally.store.manifest import SUMMARIES
from mcptally.store.parts import Written, write_summary
from mcptally.store.remote_folder import upload
from mcptally.transcript.remote import is_remote

_ENDED: Final[set[str]] = set()
"""Names of runs that have ended. Tasks of these runs that are still running must not leave files.
"""

_ONE_AT_A_TIME: Final = threading.Lock()
"""Lock that lets only one thread of a worker work at a time, because memory is planned for one
partition per process."""


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all workers, because they affect the tables."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"mcptally": mcptally.__version__, "polars": pl.__version__, "python": python}


@dataclasses.dataclass(frozen=True, slots=True)
class DaskRun:
    """The parameters that all tasks of a run share."""

    name: str
    """A unique name for the run."""
    work: Path
    """The store's work folder. Without an upload URL, all workers must have access to it at this
    path."""
    upload_url: str | None
    """URL under which workers put their files; the process that started the run downloads them."""
    versions: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class SavedPartition:
    """A gathered partition that is saved in the scratch folder of a worker."""

    partition: Partition
    report: GatherReport
    folder: Path
    transcript_bytes: int
    """Unpacked size of the partition's files in bytes."""

    def __sizeof__(self) -> int:
        """Return twice the transcript's size, by which Dask chooses the worker for the next task.

        On another worker, the partition would have to be gathered again, which takes about as long
        as sending twice the transcript at the 100 MB/s that Dask assumes.
        """
        return 2 * self.transcript_bytes


def gather(run: DaskRun, partition: Partition) -> SavedPartition:
    """Gather a partition and save it in this worker's scratch folder.

    Raises:
        UnreadableError: a file does not exist on this machine.
        UsageError: this worker cannot access the work folder, or has another version of mcptally.
    """
    with _prepared(run):
        return _gather(run, partition)[1]


def share_settings(settings: FinishSettings) -> FinishSettings:
    """Return the settings. As the result of a task, Dask sends them to each worker only once."""
    return settings


def finish(
    run: DaskRun,
    saved: SavedPartition,
    report: GatherReport,
    settings: FinishSettings,
    context: PartitionSummary,
) -> Written:
    """Finish a partition and write its tables into the work folder.

    Args:
        run: the run.
        saved: the partition as saved by the last worker that gathered it.
        report: the report from gathering the partition, from which the archive's facts were built.
        settings: the settings for finishing the partition.
        context: facts from the whole archive about the partition's servers and tools.

    Raises:
        UnreadableError: the partition must be gathered again, but one of its files is gone or has
            changed.
        UsageError: this worker cannot access the work folder, or has another version of mcptally.
    """
    with _prepared(run):
        try:
            part = load_saved(saved.folder)
        except OSError:
            part, saved = _gather(run, saved.partition)
        if changed := [
            now.file
            for now, before in zip(saved.report.sources, report.sources, strict=True)
            if now.digest != before.digest
        ]:
            raise UnreadableError(
                f"{changed[0]}: changed while it was scored, and the worker that had read it is "
                "gone; score again"
            )
        with _output_folder(run) as work:
            written = finish_and_write(work, saved.partition.number, part, context, settings)
        shutil.rmtree(saved.folder, ignore_errors=True)
        return written


@contextlib.contextmanager
def _output_folder(run: DaskRun) -> Iterator[Path]:
    """Yield a folder for tables; at the end, move its files to the work folder or upload them."""
    if run.upload_url is None:
        with _draft(run.work) as folder:
            yield folder
        return
    folder = _scratch(_worker()) / run.name / f"out-{secrets.token_hex(4)}"
    (folder / SUMMARIES).mkdir(parents=True)
    try:
        yield folder
        parts = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
        upload(folder, f"{run.upload_url}/{run.name}", parts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _draft(work: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose files are moved into the work folder at the end.

    A cluster's scheduler may give a partition to a second worker while the first worker is still
    writing it. So an incomplete part must never be visible, and a work folder that was removed at
    the end of its run must not be created again.
    """
    draft = work / f"draft-{secrets.token_hex(4)}"
    draft.mkdir()
    try:
        (draft / SUMMARIES).mkdir()
        yield draft
        for written in list(draft.rglob("*.parquet")):
            target = work / written.relative_to(draft)
            try:  # move the table's folder, which contains only this file
                written.parent.rename(target.parent)
            except (
                OSError
            ):  # the work folder already has this folder, with parts of other partitions
                written.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def clear(run: DaskRun, dask_worker: Any = None) -> None:
    """Remove the run's files from a worker's scratch folder, and stop tasks from writing more.

    The function is not a task, so Dask passes the worker as `dask_worker`.
    """
    _ENDED.add(run.name)
    shutil.rmtree(_scratch(dask_worker) / run.name, ignore_errors=True)


def dask_setup(_worker: object) -> None:
    """Ignore Ctrl-C in a worker; Dask calls this when a worker of mcptally's own cluster starts."""
    # the process that started the run ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def sees(folder: Path) -> bool:
    """Return whether a folder exists on this machine."""
    return folder.is_dir()


def _gather(
    run: DaskRun, partition: Partition
) -> tuple[GatheredPartition | SavedSlices, SavedPartition]:
    folder = _scratch(_worker()) / run.name / f"{partition.number:06d}-{secrets.token_hex(4)}"
    for path in partition.files:
        # On one machine, a missing file is a finding; on a worker, it is an error in the setup.
        if not is_remote(path) and not path.exists():
            raise UnreadableError(
                f"{path}: worker {_me()} has no such file; every worker reads the archive itself: "
                "put it where all of them find it under the same path, or name it by a URL such "
                "as s3://bucket/traces"
            )
    part, report, summary = gather_files(partition, folder)
    if isinstance(part, GatheredPartition):
        save(folder, part)
    with _output_folder(run) as work:
        write_summary(work, f"{partition.number:06d}", summary)
    return part, SavedPartition(partition, report, folder, partition.size)


@contextlib.contextmanager
def _prepared(run: DaskRun) -> Iterator[None]:
    """Check that this worker can take part in the run, and keep other tasks waiting meanwhile."""
    require_versions(_me(), versions(), run.versions)
    if run.upload_url is None and not sees(run.work):
        raise UsageError(not_seen(_me(), run.work))
    with _ONE_AT_A_TIME:
        try:
            if run.name in _ENDED:
                raise McptallyError(f"{_me()}: this run has ended")
            yield
        finally:
            if run.name in _ENDED:
                shutil.rmtree(_scratch(_worker()) / run.name, ignore_errors=True)


def require_versions(worker: str, theirs: dict[str, str], ours: dict[str, str]) -> None:
    """Check that a worker has the same versions as the process that started the run.

    Raises:
        UsageError: a version differs.
    """
    for name, version in ours.items():
        if theirs.get(name) != version:
            raise UsageError(
                f"worker {worker} has {name} {theirs.get(name)}, the run was started with "
                f"{version}: the tables would not be the same; install on every worker: "
                f"python {ours['python']}, pip install 'mcptally[dask]=={ours['mcptally']}' "
                f"polars=={ours['polars']}"
            )


def not_seen(worker: str, work: Path) -> str:
    """Return the error message about a worker that cannot access the store's folder."""
    return (
        f"worker {worker} does not see {work.parent.parent}: workers write the store themselves; "
        "put it where all of them find it under the same path"
    )


def _me() -> str:
    return f"{_worker().address} ({socket.gethostname()})"


def _scratch(worker: Any) -> Path:
    """Return a worker's folder for temporary files, which Dask removes when the worker exits."""
    return Path(worker.local_directory) / "mcptally"


def _worker() -> Any:
    """Return the Dask worker that runs the current task."""
    from distributed import get_worker  # noqa: PLC0415  (an extra; loaded already on a worker)

    return get_worker()
