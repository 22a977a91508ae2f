"""Whether mcptally can work here: each check is ok, a warning or an error, with what to do.

No value of an environment variable and no line of a configuration is ever shown.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import pyarrow.parquet as pq

from mcptally.errors import McptallyError
from mcptally.output.plural import count
from mcptally.pipeline import fingerprint
from mcptally.record.config import wrap
from mcptally.store import files as store_files
from mcptally.tables.all_tables import TABLES
from mcptally.transcript import check
from mcptally.transcript.remote import is_url

State = Literal["ok", "warning", "error"]
"""What became of a check, best first; with an error something does not work."""

TESTED: Final = ((3, 11), (3, 13))
"""Versions of Python that the tests run with, the first and the last."""
START_UP: Final = 2.5
"""How many times a bare interpreter with asyncio the recorder's start may take."""
ROOM: Final = (100 * 10**6, 10**9)
"""Free bytes below which writing is an error and a warning."""

VARIABLES: Final = {
    "PATH": "where servers are found",
    "HOME": "where recordings and client configurations are",
    "XDG_DATA_HOME": "where recordings go",
    "XDG_CONFIG_HOME": "where client configurations are",
    "LOCALAPPDATA": "where recordings go (Windows)",
    "APPDATA": "where client configurations are (Windows)",
    "TMPDIR": "where temporary files go",
    "SSL_CERT_FILE": "which certificates a remote server is trusted by",
    "HTTPS_PROXY": "the recorder goes to remote servers directly, past any proxy",
    "NO_COLOR": "tables without colour",
    "COLUMNS": "how wide tables are",
    "POLARS_MAX_THREADS": "threads of polars",
    "DASK_SCHEDULER_ADDRESS": "which cluster works with --engine dask",
    "PYTHONPATH": "which mcptally runs",
}
"""Variables of the environment that change what mcptally does, and how."""
NEEDED: Final = ("PATH",) if os.name == "nt" else ("PATH", "HOME")
"""Variables that have to be set."""


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    says: str
    """What was found."""
    do: str = ""
    """What to do about it; empty where nothing is to be done."""


def examine(
    *,
    archives: Sequence[Path] = (),
    stores: Sequence[Path] = (),
    configs: Sequence[Path] | None = None,
) -> list[Check]:
    """Every check, in the order in which they are read.

    Args:
        archives: recordings to look through.
        stores: stores to look through.
        configs: client configurations; by default those in the usual places.
    """
    return [
        *_python(),
        *_packages(),
        *_variables(),
        *_places(stores),
        _start_up(),
        *_configurations(usual_configurations() if configs is None else configs),
        *(_archive(path) for path in archives),
        *(found for path in stores for found in _store(path)),
    ]


def worst(checks: Iterable[Check]) -> State:
    """The worst state of all."""
    return max((found.state for found in checks), key=get_args(State).index, default="ok")


def _python() -> Iterator[Check]:
    yield Check("platform", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    version = sys.version_info[:2]
    first, last = (".".join(map(str, end)) for end in TESTED)
    says = f"{platform.python_version()} ({platform.python_implementation()})"
    if version < TESTED[0]:
        yield Check("python", "error", says, f"mcptally needs Python {first} or later")
    elif version > TESTED[1]:
        yield Check("python", "warning", says, f"tested with Python {first} to {last}")
    else:
        yield Check("python", "ok", says)


_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:>=([0-9.]+))?")


def _packages() -> Iterator[Check]:
    try:
        wanted = importlib.metadata.requires("mcptally") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("packages", "warning", "mcptally is not installed", "pip install mcptally")
        return
    for line in wanted:
        requirement, _, marker = line.partition(";")
        found = _REQUIREMENT.match(requirement.replace(" ", ""))
        if "extra" in marker or found is None:
            continue
        name, least = found[1], found[2] or "0"
        do = f"pip install '{name}>={least}'"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, "error", "is not installed", do)
            continue
        old = _numbers(version) < _numbers(least)
        yield Check(name, "error" if old else "ok", version, do if old else "")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:4]]


def _variables() -> Iterator[Check]:
    for name, meaning in VARIABLES.items():
        value = os.environ.get(name)
        state = "missing" if value is None else "set" if value.strip() else "empty"
        if name in NEEDED and state != "set":
            yield Check(name, "error", f"{state}; {meaning}", f"set {name}")
        elif state == "empty" and name != "NO_COLOR":
            do = f"set {name} or unset it: empty, it may count as set"
            yield Check(name, "warning", f"empty; {meaning}", do)
        else:
            yield Check(name, "ok", f"{state}; {meaning}")


def _places(stores: Iterable[Path]) -> Iterator[Check]:
    usual: dict[str, Callable[[], Path]] = {
        "recordings": wrap.default_out,
        "temporary files": lambda: Path(tempfile.gettempdir()),
    }
    places = []
    for what, find in usual.items():
        try:
            places.append(find())
        except (McptallyError, OSError) as error:
            yield Check(f"write {what}", "error", f"{error}", "set HOME and TMPDIR")
    for place in dict.fromkeys([*places, *stores]):
        around = (place, *place.absolute().parents)
        # `Path.exists` raises where a folder may not be looked into.
        there = next(path for path in around if os.path.exists(path))  # noqa: PTH110
        name = f"write to {place}"
        if not os.access(there, os.W_OK | os.X_OK):
            yield Check(name, "error", f"{there} is not ours to write in", "choose another folder")
            continue
        free = shutil.disk_usage(there).free
        says = f"{free / 1e9:,.1f} GB free"
        if free < ROOM[0]:
            yield Check(name, "error", says, "make room: recordings get gaps when it is full")
        elif free < ROOM[1]:
            yield Check(name, "warning", says, "make room before recording for long")
        else:
            yield Check(name, "ok", says)


def _start_up() -> Check:
    def seconds(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return time.perf_counter() - began

    bare, recorder = [], []
    relay = "windows" if sys.platform == "win32" else "stdio"
    try:
        for _ in range(3):  # in turn, so that a busy machine is as busy for both
            bare.append(seconds("import asyncio"))
            recorder.append(seconds(f"import mcptally.cli.record, mcptally.record.{relay}"))
    except (OSError, subprocess.CalledProcessError) as error:
        return Check("recorder start-up", "error", f"{error}", "install mcptally again")
    ratio = min(recorder) / min(bare)
    says = f"{statistics.median(recorder) * 1000:.0f} ms, {ratio:.1f} times a bare interpreter"
    if ratio > START_UP:
        return Check("recorder start-up", "warning", says, "look for slow disks and .pth files")
    return Check("recorder start-up", "ok", says)


def usual_configurations() -> list[Path]:
    """Configurations of clients in their usual places, those that there are."""
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
    elif os.name == "nt":
        base = os.environ.get("APPDATA") or "~/AppData/Roaming"
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    here = Path.cwd()
    places = (
        f"{base}/Claude/claude_desktop_config.json",
        "~/.claude.json",
        "~/.cursor/mcp.json",
        f"{base}/Code/User/mcp.json",
        f"{base}/Code/User/settings.json",
        f"{here}/.mcp.json",
        f"{here}/.cursor/mcp.json",
        f"{here}/.vscode/mcp.json",
    )
    # Where nobody knows what `~` is, or a folder may not be looked into, there is none.
    found = map(os.path.expanduser, places)
    return [Path(path) for path in found if os.path.isfile(path)]  # noqa: PTH113


def _configurations(configs: Sequence[Path]) -> Iterator[Check]:
    if not configs:
        yield Check("client configurations", "ok", "none in the usual places")
    for path in configs:
        name = f"client {path}"
        try:
            servers = wrap.status(path)
        except McptallyError as error:
            yield Check(name, "warning", f"{error}", "mend it, or name the right file")
            continue
        wrapped = sum(state is True for state in servers.values())
        remote = sum(state is None for state in servers.values())
        plain = len(servers) - wrapped - remote
        says = f"{wrapped} of {len(servers)} servers behind the recorder, {remote} remote"
        yield Check(
            name, "ok", says, f"to record the other {plain}: mcptally wrap {path}" if plain else ""
        )


def _archive(path: Path) -> Check:
    name = f"archive {path}"
    try:
        found = check.check([path])
    except McptallyError as error:
        return Check(name, "error", f"{error}", "name a folder or file of recordings")
    says = ", ".join(
        (
            count(found.files, "file"),
            count(len(found.recordings), "recording"),
            count(found.events, "event"),
        )
    )
    if found.whole:
        return Check(name, "ok", f"{says}, whole")
    bad = sum(recording.verdict != "whole" for recording in found.recordings)
    damaged = count(len(found.damaged_files), "file")
    says = f"{says}; {count(bad, 'recording')} not whole, {damaged} damaged"
    return Check(name, "warning", says, f"mcptally check {path} says where")


def _store(path: Path) -> Iterator[Check]:
    name = f"store {path}"
    again = f"mcptally score ARCHIVE -o {path}"
    try:
        manifest = store_files.read_manifest(path)
        again = store_files.how_to_rebuild(path, manifest)
        written, scored_at = dict(manifest["rows"]), manifest["scored_at"]
        sources = {source["file"]: source["size"] for source in manifest["archive"]}
        if broken := fingerprint.damaged(path, manifest):
            yield Check(name, "error", f"{', '.join(broken)}: not as written", again)
            return
        names = {table.name for table in TABLES}
        rows = {
            table: sum(pq.read_metadata(file).num_rows for file in files)
            for table, files in store_files.live(path, manifest).items()
            if table in names
        }
    except (McptallyError, OSError, ValueError) as error:
        yield Check(name, "error", f"{error}", again)
        return
    except (KeyError, TypeError) as error:
        yield Check(name, "error", f"{store_files.MANIFEST} is not as written: {error!r}", again)
        return
    wrong = [kind for kind, count in written.items() if rows.get(kind) != count]
    if wrong:
        says = f"{', '.join(wrong)}: not the rows that {store_files.MANIFEST} says"
        yield Check(name, "error", says, again)
    else:
        yield Check(name, "ok", f"{rows['calls']:,} calls, scored {scored_at}")
    # What lies behind a URL is not asked for: that would take the network.
    changed = [file for file, size in sources.items() if not is_url(file) and _size(file) != size]
    if changed:
        says = f"{len(changed)} of its {len(sources)} files changed or are gone"
        yield Check(f"{name}: archive", "warning", says, again)


def _size(file: str) -> int | None:
    try:
        return Path(file).stat().st_size
    except OSError:
        return None
