"""Closes inherited descriptors in a forked process."""

import os


def detach_descriptors(*kept: int, stderr: int | None = None) -> None:
    """Close all descriptors except `kept`; 0, 1 and 2 become /dev/null, or 2 becomes `stderr`."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null if fd < 2 or stderr is None else stderr, fd)
    begin = 3
    for fd in sorted(fd for fd in kept if fd >= begin):
        os.closerange(begin, fd)
        begin = fd + 1
    os.closerange(begin, min(os.sysconf("SC_OPEN_MAX"), 1 << 20))
