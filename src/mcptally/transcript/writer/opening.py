"""Opens an archive that a second process writes, or, where that is not possible, this process."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcptally.transcript.writer.interface import ArchiveWriter
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.log import log_to_stderr

if TYPE_CHECKING:
    from mcptally.redaction.policy import Policy


def open_archive(folder: str, *, policy: "Callable[[], Policy]", limits: Limits) -> ArchiveWriter:
    """The archive in `folder`; `policy` is called in the process that writes."""
    if sys.platform != "win32":
        from mcptally.transcript.writer.process import WriterProcess  # noqa: PLC0415 - POSIX only

        try:
            return WriterProcess(folder, policy=policy, limits=limits)
        except OSError as error:
            log_to_stderr(
                f"cannot start a writer process: {error.strerror}; the recorder writes the "
                "events itself, so a slow disk delays traffic"
            )
    from mcptally.transcript.writer.archive import Archive  # noqa: PLC0415 - usually not needed

    return Archive(folder, policy=policy(), limits=limits)
