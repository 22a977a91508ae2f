"""Declares the interface between a run and the workers that gather and finish its partitions.

Implemented by processes on this machine (`local`) and by workers of a Dask cluster (`dask`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from mcptally.pipeline.engines.worker import FinishSettings, GatherReport, Partition
from mcptally.pipeline.partition_summary import PartitionSummary
from mcptally.store.parts import Written

ContextOf = Callable[[int], PartitionSummary]
"""Returns the archive's facts about the servers and tools of a partition, given its number."""


class WorkerPool(Protocol):
    """Workers that gather partitions, keep them, and finish them.

    A worker's errors (`McptallyError`, `OSError`) are raised here. `McptallyError` is also raised
    if a worker process dies.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def gather(self, partitions: Sequence[Partition]) -> Iterator[tuple[int, GatherReport]]:
        """Gather and keep partitions.

        Yield each partition's number and report in order of completion.
        """

    def discard(self, numbers: Iterable[int]) -> None:
        """Delete gathered partitions, whose files are gathered again together with other files."""

    def finish(
        self, numbers: Iterable[int], context_of: ContextOf, settings: FinishSettings
    ) -> Iterator[Written]:
        """Finish gathered partitions and write their tables; yield in the order of completion.

        `context_of` is called a few partitions ahead of the workers.
        """


class Engine(Protocol):
    """The processes or the cluster that work on partitions."""

    jobs: int
    """The number of partitions processed at the same time."""

    def pool(self, partitions: int, work: Path, memory: int) -> WorkerPool:
        """Return workers for a run that writes up to `partitions` partitions to the work folder.

        Processes on this machine keep up to `memory` bytes of transcript in memory, and the other
        gathered partitions on disk.
        """
