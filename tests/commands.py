"""Runs a command line in this process: all of `main()`, with its exit code and what it prints.

What needs a process of its own (signals, pipes that close, terminals, what is imported) starts one.
"""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from mcptally.cli import main


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What `mcptally ARGUMENTS` prints, as text, and its exit code."""
    done = run_bytes(*arguments)
    out, err = (text.decode() for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def run_bytes(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """What `mcptally ARGUMENTS` prints, as bytes, and its exit code."""
    words = ["mcptally", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        # Files, not buffers in memory: the command may ask for their descriptors.
        paths = [Path(name, "stdout"), Path(name, "stderr")]
        out, err = (stack.enter_context(path.open("w", encoding="utf-8")) for path in paths)
        stack.enter_context(mock.patch.object(sys, "argv", words))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        returned = 0
        try:
            main()
        except SystemExit as end:
            returned = int(end.code or 0)
        out.flush()
        err.flush()
        said = [path.read_bytes() for path in paths]
    return subprocess.CompletedProcess(words, returned, *said)
