"""Implements a pytest plugin: records a test run's MCP traffic and prints mcptally's findings.

    def test_search(mcp_recorder):
        command = mcp_recorder.command("python", "server.py")  # start this instead
        with mcp_recorder.url(app) as url:  # an HTTP server, connect to this instead
            ...

pytest imports this module in every run, so the analysis code is imported only at the end of a run
that recorded something. With pytest-xdist, all workers record into one folder, which the controller
analyzes.
"""

import contextlib
import functools
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from mcptally.errors import McptallyError

if TYPE_CHECKING:
    from mcptally.gates.limits import Gate

_ADDRESS: Final = re.compile(r"clients connect to (?P<url>http://\S+)")
_FOLDER: Final = "mcptally_folder"
"""Key in `workerinput` under which a pytest-xdist worker finds the folder for recordings."""


class McpRecorder:
    """Runs MCP servers behind the recorder, which writes recordings to `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *command: str, name: str | None = None) -> list[str]:
        """Return a command that runs a stdio server behind the recorder.

        Args:
            command: the server's program and its arguments.
            name: the server's name in the findings; default: derived from the command.
        """
        return [*self._record(name), "--", *command]

    @contextlib.contextmanager
    def url(self, server: Any, *, name: str | None = None, path: str = "/mcp") -> Iterator[str]:
        """Record an HTTP server during a `with` block; yield the URL for clients to connect to.

        Args:
            server: the URL of a running server, an ASGI app, or a server object of the MCP SDK or
                of FastMCP. Apps and objects are served by a thread of this process.
            name: the server's name in the findings; default: the name of the object, or the host.
            path: path at which an ASGI app serves MCP.
        """
        with contextlib.ExitStack() as stack:
            if not isinstance(server, str):
                name = name or getattr(server, "name", None)
                server = stack.enter_context(_served(_app_of(server))) + path
            yield stack.enter_context(self._proxied(server, name))

    def _record(self, name: str | None) -> list[str]:
        named = ["--name", name] if name else []
        record = [sys.executable, "-m", "mcptally", "record", "--out", str(self.folder)]
        return [*record, *named]

    @contextlib.contextmanager
    def _proxied(self, url: str, name: str | None) -> Iterator[str]:
        command = [*self._record(name), "--url", url, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8") as process:
            said = cast("Any", process.stderr)
            first = []
            for line in said:
                first.append(line)
                if found := _ADDRESS.search(line):
                    break
            else:
                raise RuntimeError(f"the recorder did not start: {''.join(first)}")
            threading.Thread(
                target=said.read, daemon=True
            ).start()  # a full pipe would block the recorder
            try:
                yield found["url"]
            finally:
                process.terminate()


def _app_of(server: Any) -> Any:
    """Return the ASGI app of a server object; return an app itself unchanged."""
    for method in ("streamable_http_app", "http_app"):
        if hasattr(server, method):
            return getattr(server, method)()
    if hasattr(server, "_mcp_server") or not callable(server):
        raise TypeError(f"{server!r} is not a URL, an ASGI app or a server of the MCP SDK")
    return server


@contextlib.contextmanager
def _served(app: Any) -> Iterator[str]:
    """Serve an ASGI app in a thread during a `with` block; yield its root URL."""
    import uvicorn  # noqa: PLC0415  (only needed for apps)

    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError(f"{app!r} could not be started; its error is in the log above")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        server.force_exit = True  # the recorder's clients may keep streams open
        thread.join()


@pytest.fixture(scope="session")
def mcp_recorder(request: pytest.FixtureRequest) -> McpRecorder:
    """Puts mcptally's recorder in front of MCP servers: `.command(…)` and `.url(…)`."""
    run = _run_of(request.config)
    run.traces.mkdir(parents=True, exist_ok=True)
    return McpRecorder(run.traces)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add mcptally's options to pytest."""
    group = parser.getgroup("mcptally", "recording MCP servers (mcptally)")
    group.addoption(
        "--mcptally-out",
        metavar="DIR",
        help="Keep the recordings of all runs here; default: those of the last run in pytest's "
        "cache.",
    )
    group.addoption(
        "--mcptally-fail-on",
        action="append",
        default=[],
        metavar="GATE",
        help="Fail the run if this holds, as in mcptally score: 'failure_rate > 5%%', or a TOML "
        "file of gates. Can be repeated.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the state that the plugin keeps for this run; reject invalid gates."""
    config.pluginmanager.register(_Run(config), "mcptally_run")


def _run_of(config: pytest.Config) -> "_Run":
    return cast("_Run", config.pluginmanager.get_plugin("mcptally_run"))


class _Run:
    """The recordings of a pytest run, and the results of their analysis."""

    def __init__(self, config: pytest.Config) -> None:
        self.lines: list[str] = []
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._kept: str | None = config.getoption("--mcptally-out")
        self._gates = [] if self._is_worker else _gates(config.getoption("--mcptally-fail-on"))

    @functools.cached_property
    def traces(self) -> Path:
        """The folder for this run's recordings; it exists only if something was recorded."""
        if self._is_worker:
            return Path(cast("Any", self._config).workerinput[_FOLDER])
        kept, started_in = self._kept, self._config.invocation_params.dir
        base = Path(started_in, kept) if kept else _cache_folder(self._config)
        return base / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the folder for recordings to a pytest-xdist worker."""
        node.workerinput[_FOLDER] = str(self.traces)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Score the recordings, and fail the run if a gate fails."""
        if self._is_worker or "traces" not in vars(self):  # no test used the fixture
            return
        if not self.traces.is_dir() or not any(self.traces.iterdir()):
            return
        if not self._kept:
            for other in self.traces.parent.iterdir():
                if other != self.traces:
                    shutil.rmtree(other, ignore_errors=True)
        try:
            failed = self._score()
        except McptallyError as error:
            self.lines.append(f"the recordings could not be scored: {error}")
            failed = bool(self._gates)
        if failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _score(self) -> bool:
        """Compute the lines of the summary; return whether a gate failed."""
        from mcptally.analytics.store import open_store  # noqa: PLC0415  (loads polars)
        from mcptally.gates import ci_reports, limits  # noqa: PLC0415
        from mcptally.output.overview import overview  # noqa: PLC0415
        from mcptally.output.overview.screen import screen  # noqa: PLC0415

        found = overview([self.traces])
        names = [os.path.relpath(self.traces)]
        self.lines += screen(names, found.answer, found.store, found.page).splitlines()
        if not self._gates:
            return False
        results = limits.check_store(open_store(found.store), self._gates)
        self.lines += ci_reports.lines(results)
        return any(result.state == "failed" for result in results)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary, with failed gates in red."""
        if self.lines:
            terminalreporter.write_sep("=", "mcptally: recorded MCP traffic")
            for line in self.lines:
                terminalreporter.write_line(line, red=line.startswith("FAILED "))


def _cache_folder(config: pytest.Config) -> Path:
    """Return a folder in pytest's cache, or a temporary folder if the cache is disabled."""
    cache = getattr(config, "cache", None)
    return Path(tempfile.mkdtemp(prefix="mcptally-")) if cache is None else cache.mkdir("mcptally")


def _gates(texts: Sequence[str]) -> "list[Gate]":
    if not texts:
        return []
    from mcptally.gates import limits  # noqa: PLC0415  (loads polars)

    try:
        return limits.load(texts)
    except McptallyError as error:
        raise pytest.UsageError(f"--mcptally-fail-on: {error}") from error
