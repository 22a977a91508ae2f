"""What a worker of a cluster is asked to do: gather a partition, and finish it.

Both may be asked again, by anybody, at any time: a worker that dies is forgotten, and another does
what it did. So nothing here counts on what went before. A gathered partition waits in the scratch
folder of the worker that gathered it; where that is gone, it is gathered again.
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
from mcptally.errors import UnreadableError, UsageError
from mcptally.pipeline.engines.worker import Learned, judge, keep, kept, note, read
from mcptally.pipeline.partition import Gathered
from mcptally.pipeline.partition_summary import PartitionSummary
from mcptally.pipeline.plan import weight
from mcptally.pipeline.scoring import Judging
from mcptally.process_memory import gc_paused
from mcptally.store import files as store_files
from mcptally.transcript.remote import is_remote, put

_ONE_AT_A_TIME: Final = threading.Lock()
"""A worker with many threads would hold as many partitions at once: memory goes by process."""


def versions() -> dict[str, str]:
    """What must be the same everywhere, for tables to be what one machine would write."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"mcptally": mcptally.__version__, "polars": pl.__version__, "python": python}


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """What all errands of a run have in common."""

    name: str
    """Nobody else's."""
    work: Path
    """The store's work folder; every worker sees it under this path, unless there are parcels."""
    parcels: str | None
    """The URL below which workers put what they write, for who started the run to fetch."""
    versions: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """The files of a partition, and how its tables call them."""

    number: int
    files: list[Path]
    names: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """What every partition is finished by."""

    judging: Judging
    payloads: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """A gathered partition: what it brought to light, and where the rest of it waits."""

    batch: Batch
    learned: Learned
    folder: Path
    transcript: int
    """Bytes of its files, unpacked."""

    def __sizeof__(self) -> int:
        """What it costs to have it elsewhere, told in bytes, by which Dask chooses who goes on.

        It is no data to be sent, but work to be done again: that takes about as long as sending
        twice the transcript at the 100 MB/s that Dask reckons with.
        """
        return 2 * self.transcript


def gather(run: Run, batch: Batch) -> Kept:
    """Gather a partition and keep it in this worker's scratch folder.

    Raises:
        UnreadableError: a file is not there on this machine.
        UsageError: this worker does not see the work folder, or has another version of mcptally.
    """
    with _working(run):
        return _gather(run, batch)[1]


def settle(settled: Settled) -> Settled:
    """What it was given: as a task of its own it reaches a worker once, and outlives any."""
    return settled


def finish(
    run: Run, here: Kept, learned: Learned, settled: Settled, archive: PartitionSummary
) -> store_files.Written:
    """Judge a partition and write its tables into the work folder.

    Args:
        run: the run.
        here: the partition, as whoever gathered it last left it.
        learned: what the archive's knowledge was made of.
        settled: what to finish by.
        archive: what all know of its tools.

    Raises:
        UnreadableError: a file of it is gone or changed, so that it could not be gathered again.
        UsageError: this worker does not see the work folder, or has another version of mcptally.
    """
    with _working(run):
        try:
            part = kept(here.folder)
        except OSError:
            part, here = _gather(run, here.batch)
        if changed := [
            now.file
            for now, before in zip(here.learned.sources, learned.sources, strict=True)
            if now != before
        ]:
            raise UnreadableError(
                f"{changed[0]}: changed while it was scored, and the worker that had read it is "
                "gone; score again"
            )
        with _desk(run) as work:
            written = judge(
                work,
                here.batch.number,
                part,
                archive,
                settled.judging,
                payloads=settled.payloads,
            )
        shutil.rmtree(here.folder, ignore_errors=True)
        return written


@contextlib.contextmanager
def _desk(run: Run) -> Iterator[Path]:
    """Where to write: the work folder, or a folder here whose parts are sent off at the end."""
    if run.parcels is None:
        yield run.work
        return
    folder = _scratch(_worker()) / run.name / f"out-{secrets.token_hex(4)}"
    (folder / store_files.KNOWN).mkdir(parents=True)
    try:
        yield folder
        parts = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
        put(folder, f"{run.parcels}/{run.name}", parts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear(run: Run, dask_worker: Any = None) -> None:
    """Remove what the run left in this worker's scratch folder; not a task, so it is told whose."""
    shutil.rmtree(_scratch(dask_worker) / run.name, ignore_errors=True)


def dask_setup(_worker: object) -> None:
    """Run by Dask in each worker of a cluster of our own, as it starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started the run, who ends it


def sees(folder: Path) -> bool:
    """Whether the folder is there on this machine."""
    return folder.is_dir()


def _gather(run: Run, batch: Batch) -> tuple[Gathered, Kept]:
    folder = _scratch(_worker()) / run.name / f"{batch.number:06d}-{secrets.token_hex(4)}"
    for path in batch.files:
        # Elsewhere a file that is gone is a finding; here it is a mistake in how this was set up.
        if not is_remote(path) and not path.exists():
            raise UnreadableError(
                f"{path}: worker {_me()} has no such file; every worker reads the archive itself: "
                "put it where all of them find it under the same path, or name it by a URL such "
                "as s3://bucket/traces"
            )
    part, learned = read(batch.files, batch.names)
    keep(folder, part)
    with _desk(run) as work:
        note(work, batch.number, part)
    return part, Kept(batch, learned, folder, sum(map(weight, batch.files)))


@contextlib.contextmanager
def _working(run: Run) -> Iterator[None]:
    """This worker fit for the run, and busy with nothing else of ours."""
    refuse(_me(), versions(), run.versions)
    if run.parcels is None and not sees(run.work):
        raise UsageError(unseen(_me(), run.work))
    with _ONE_AT_A_TIME, gc_paused():
        yield


def refuse(worker: str, theirs: dict[str, str], ours: dict[str, str]) -> None:
    """See that a worker has our versions.

    Raises:
        UsageError: it has not.
    """
    for name, version in ours.items():
        if theirs.get(name) != version:
            raise UsageError(
                f"worker {worker} has {name} {theirs.get(name)}, the run was started with "
                f"{version}: the tables would not be the same; install on every worker: "
                f"python {ours['python']}, pip install 'mcptally[dask]=={ours['mcptally']}' "
                f"polars=={ours['polars']}"
            )


def unseen(worker: str, work: Path) -> str:
    """What to say of a worker that does not see the store's folder."""
    return (
        f"worker {worker} does not see {work.parent.parent}: workers write the store themselves; "
        "put it where all of them find it under the same path"
    )


def _me() -> str:
    return f"{_worker().address} ({socket.gethostname()})"


def _scratch(worker: Any) -> Path:
    """Where a worker may leave things; gone when it ends."""
    return Path(worker.local_directory) / "mcptally"


def _worker() -> Any:
    """The worker whose task this is."""
    from distributed import get_worker  # noqa: PLC0415  (an extra; here it runs already)

    return get_worker()
