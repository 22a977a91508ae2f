"""Starts listening before the application is loaded, because loading takes longer.

The browser can start while the application is loaded; its first request waits until the application
accepts it.
"""

import contextlib
import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mcptally.errors import UsageError
from mcptally.output.explore.state import State


@contextlib.contextmanager
def listening(
    path: Path,
    *,
    port: int = 0,
    base: Path | None = None,
    reviews: Path | None = None,
    **options: Any,
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Start a server for a store; its socket listens immediately.

    Args:
        path: the store.
        port: the port; 0 means any free port.
        base: an earlier store, to compare with.
        reviews: the file of review answers; by default, the file in the archive's folder.
        options: additional arguments for `app.serving`.

    Yields:
        The address to open, including the token, and a function that serves until Ctrl-C.

    Raises:
        StoreError: there is no store at `path` or at `base`.
        UsageError: the port cannot be used.
    """
    state = State(path, base, reviews)
    token = secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"port {port} cannot be used: {error.strerror}") from error
        listener.listen()
        used = listener.getsockname()[1]

        def run() -> None:
            with contextlib.ExitStack() as stack:
                with _signals_wait():
                    # This import takes longer than everything before it.
                    from mcptally.output.explore.app import serving  # noqa: PLC0415

                    serve = stack.enter_context(serving(state, listener, token=token, **options))
                serve()

        yield f"http://127.0.0.1:{used}/{token}/", run


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Block SIGINT and SIGTERM in a `with` block whose imports or queries they would make fail."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def redirect_file(address: str) -> Iterator[Path]:
    """Yield a temporary file that redirects to `address` and that only this user can read.

    The token must not be on the browser's command line, which other users can read.
    """
    with tempfile.TemporaryDirectory(prefix="mcptally-explore-") as folder:  # mode 700
        page = Path(folder) / "open.html"
        page.write_text(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={address}"><title>mcptally</title>'
            f'<a href="{address}">Open the store</a>',
            encoding="utf-8",
        )
        yield page
