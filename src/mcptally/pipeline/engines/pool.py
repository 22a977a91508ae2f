"""The protocol between a run and the workers that gather and finish its partitions.

Implemented by the processes of this machine (`local`) and the workers of a Dask cluster (`dask`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from mcptally.pipeline.engines.worker import FinishSettings, GatherReport, Partition
from mcptally.pipeline.partition_summary import PartitionSummary
from mcptally.store.parts import Written

ContextOf = Callable[[int], PartitionSummary]
"""Number of a partition → the facts of the whole archive about its servers and tools."""


class WorkerPool(Protocol):
    """Workers that gather partitions, keep them, and finish them.

    Errors of a worker (`McptallyError`, `OSError`) are raised here. `McptallyError` also means
    that a worker process died.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def gather(self, partitions: Sequence[Partition]) -> Iterator[tuple[int, GatherReport]]:
        """Gather partitions and keep them; yield number and report in the order of completion."""

    def discard(self, numbers: Iterable[int]) -> None:
        """Delete gathered partitions: their files will be gathered again with others."""

    def finish(
        self, numbers: Iterable[int], context_of: ContextOf, settings: FinishSettings
    ) -> Iterator[Written]:
        """Finish gathered partitions and write their tables; yield in the order of completion.

        `context_of` is called a few partitions ahead of the workers.
        """


class Engine(Protocol):
    """The processes or the cluster that work on partitions."""

    jobs: int
    """How many partitions it works on at a time."""

    def pool(self, partitions: int, work: Path, memory: int) -> WorkerPool:
        """Workers for a run that writes at most `partitions` partitions to the work folder `work`.

        Processes of this machine keep gathered partitions of `memory` bytes of transcript in
        memory, and the others on disk.
        """
