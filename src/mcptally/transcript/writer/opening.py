"""Opens an archive, which a second process writes or, if there can be none, this one."""

from mcptally.transcript.writer.interface import ArchiveWriter
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.log import log_to_stderr
from mcptally.transcript.writer.process import WriterProcess


def open_archive(folder: str, *, policy: str, limits: Limits) -> ArchiveWriter:
    """Open an archive in `folder`; `policy` is the text of its redaction policy."""
    try:
        return WriterProcess(folder, policy=policy, limits=limits)
    except OSError as error:
        log_to_stderr(
            f"cannot start a writer process: {error.strerror}; the recorder writes the "
            "events itself, so a slow disk delays traffic"
        )
    # Import late: the recorder only needs these modules if there is no writer process.
    from mcptally.redaction.policy import policy as policy_named  # noqa: PLC0415
    from mcptally.transcript.writer.archive import Archive  # noqa: PLC0415
    from mcptally.transcript.writer.recovery import FinishingThread  # noqa: PLC0415

    FinishingThread(folder, own="", log=log_to_stderr).join()
    return Archive(folder, policy=policy_named(policy), limits=limits)
