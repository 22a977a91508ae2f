"""Listens for a browser before the application is loaded, which takes longer.

Meanwhile the browser starts; its first request waits until the application accepts it.
"""

import contextlib
import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from mcptally.errors import UsageError
from mcptally.store.manifest import read_manifest

_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS: Final = {
    # A browser may cache a page, but asks each time whether it has changed (ETag).
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The address has a token. With `no-referrer`, our own forms would have no `Origin`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response; `listening` gives them to the server."""


@contextlib.contextmanager
def listening(
    path: Path, *, port: int = 0, base: Path | None = None, **options: Any
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Open a server for the store at `path`; its socket listens at once.

    Args:
        path: the store.
        port: the port; 0 for a free one.
        base: an earlier store, to compare with.
        options: further arguments of `application`.

    Yields:
        The address to open, with the token, and a function that serves until Ctrl-C.

    Raises:
        StoreError: there is no store, or none at `base`.
        UsageError: the port cannot be used.
    """
    for store in filter(None, (path, base)):
        read_manifest(store, archive=False)
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
            with _signals_wait():
                # These take longer than everything before.
                import uvicorn  # noqa: PLC0415

                from mcptally.output.explore.app import application  # noqa: PLC0415

            config = uvicorn.Config(
                application(path, token=token, port=used, base=base, **options),
                log_level="error",
                access_log=False,
                server_header=False,
                headers=list(HEADERS.items()),
                ws="none",
            )
            uvicorn.Server(config).run(sockets=[listener])

        yield f"http://127.0.0.1:{used}/{token}/", run


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Block SIGINT and SIGTERM in the `with` block: they would make an extension's import fail."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def redirect_file(address: str) -> Iterator[Path]:
    """Yield a file that redirects to `address`, readable only by this user, removed at the end.

    Other users can read a browser's command line, so the token must not be on it.
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
