"""Declares the interface between a run and the workers that gather and finish its partitions.

It is implemented by processes on this machine (`local`) and by workers of a Dask cluster (`dask`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from mcptally.pipeline.engines.worker import FinishSettings, GatherReport, Partition
    from mcptally.pipeline.partition_summary import PartitionSummary
    from mcptally.store.parts import Written

ContextOf = Callable[[int], "PartitionSummary"]
"""A function that returns the archive's facts for a partition's servers and tools, given the number
of the partition."""


class WorkerPool(Protocol):
    """Workers that gather partitions, keep them, and finish them.

    Errors of a worker (`McptallyError`, `OSError`) are re-raised in the process of the run, which
    also raises a `McptallyError` if a worker process dies.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def gather(self, partitions: "Sequence[Partition]") -> "Iterator[tuple[int, GatherReport]]":
        """Gather partitions, and keep them.

        Yields the number and the report of each partition, in order of completion.
        """

    def discard(self, numbers: Iterable[int]) -> None:
        """Delete gathered partitions, because their files are gathered again with other files."""

    def finish(
        self, numbers: Iterable[int], context_of: ContextOf, settings: "FinishSettings"
    ) -> "Iterator[Written]":
        """Finish gathered partitions and write their tables.

        Yields the row counts of each partition, in order of completion.

        Args:
            numbers: numbers of the partitions.
            context_of: called a few partitions ahead of the workers.
            settings: the settings for finishing partitions.
        """


class Engine(Protocol):
    """The processes on this machine, or the cluster, on which a run executes."""

    jobs: int
    """The number of partitions that are processed at the same time."""

    def pool(self, partitions: int, work: Path, memory: int) -> WorkerPool:
        """Return workers for a run.

        Args:
            partitions: maximum number of partitions in the run.
            work: the work folder, to which the tables are written.
            memory: bytes of transcript that processes on this machine keep in memory; other
                gathered partitions wait on disk.
        """
