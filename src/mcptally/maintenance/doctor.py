"""Checks whether mcptally can run on this machine; each failed check suggests a fix.

The checks never show the values of environment variables or the contents of configurations.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import pyarrow.parquet as pq

from mcptally.errors import McptallyError, as_argument
from mcptally.pipeline import fingerprint
from mcptally.plural import count
from mcptally.record.config import wrap
from mcptally.store.manifest import MANIFEST, how_to_rebuild, live_files, read_manifest
from mcptally.tables.all_tables import TABLES
from mcptally.transcript.remote import is_url

State = Literal["ok", "warning", "error"]
"""The possible results of a check, from best to worst; `error` means that something does not work.
"""

TESTED_PYTHON: Final = ((3, 11), (3, 13))
"""Oldest and newest Python version with which the tests run."""
FREE_BYTES: Final = (100 * 10**6, 10**9)
"""Free bytes on a disk below which `doctor` reports an error (first number) or a warning (second).
"""

VARIABLES: Final = {
    "PATH": "where servers are found",
    "HOME": "where recordings and client configurations are",
    "XDG_DATA_HOME": "where recordings go",
    "XDG_CONFIG_HOME": "where client configurations are",
    "TMPDIR": "where temporary files go",
    "SSL_CERT_FILE": "which certificates a remote server is trusted by",
    "HTTPS_PROXY": "the recorder goes to remote servers directly, past any proxy",
    "NO_COLOR": "tables without colour",
    "COLUMNS": "how wide tables are",
    "POLARS_MAX_THREADS": "threads of polars",
    "DASK_SCHEDULER_ADDRESS": "which cluster works with --engine dask",
    "PYTHONPATH": "which mcptally runs",
}
"""Maps each environment variable that changes mcptally's behaviour to what it determines."""
REQUIRED: Final = ("PATH", "HOME")
"""Names of the environment variables that must be set."""


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    state: State
    says: str
    """The result in words, for the user."""
    do: str = ""
    """Advice for the user; empty if there is nothing to do."""


def examine(*, stores: Sequence[Path] = (), configs: Sequence[Path] | None = None) -> list[Check]:
    """Run all checks, and return their results in the order of the report.

    Args:
        stores: stores to check.
        configs: client configurations to check; by default, those in the usual locations.
    """
    return [
        *_python(),
        *_packages(),
        *_variables(),
        *_places(stores),
        *_configurations(usual_configurations() if configs is None else configs),
        *(found for path in stores for found in _store(path)),
    ]


def worst(checks: Iterable[Check]) -> State:
    """Return the worst state among the checks."""
    return max((found.state for found in checks), key=get_args(State).index, default="ok")


def _python() -> Iterator[Check]:
    yield Check("platform", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    version = sys.version_info[:2]
    first, last = (".".join(map(str, end)) for end in TESTED_PYTHON)
    says = f"{platform.python_version()} ({platform.python_implementation()})"
    if version < TESTED_PYTHON[0]:
        yield Check("python", "error", says, f"mcptally needs Python {first} or later")
    elif version > TESTED_PYTHON[1]:
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
    recent = []
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
        if _numbers(version) < _numbers(least):
            yield Check(name, "error", version, do)
        else:
            recent.append(f"{name} {version}")
    yield Check("packages", "ok", ", ".join(recent))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:4]]


def _variables() -> Iterator[Check]:
    for name, meaning in VARIABLES.items():
        value = os.environ.get(name)
        state = "missing" if value is None else "set" if value.strip() else "empty"
        if name in REQUIRED and state != "set":
            yield Check(name, "error", f"{state}; {meaning}", f"set {name}")
        elif state == "empty" and name != "NO_COLOR":
            do = f"set {name} or unset it: empty, it may count as set"
            yield Check(name, "warning", f"empty; {meaning}", do)
        elif value is not None:
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
        # `Path.exists` raises an error for a folder that we may not access.
        there = next(path for path in around if os.path.exists(path))  # noqa: PTH110
        name = f"write to {place}"
        if not os.access(there, os.W_OK | os.X_OK):
            yield Check(
                name, "error", f"no permission to write to {there}", "choose another folder"
            )
            continue
        free = shutil.disk_usage(there).free
        says = f"{free / 1e9:,.1f} GB free"
        if free < FREE_BYTES[0]:
            yield Check(
                name, "error", says, "free some space: recordings get gaps when the disk is full"
            )
        elif free < FREE_BYTES[1]:
            yield Check(name, "warning", says, "free some space before you record for long")
        else:
            yield Check(name, "ok", says)


def usual_configurations() -> list[Path]:
    """Return the paths of client configurations that exist in the usual locations."""
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
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
    # Unlike `pathlib`, `os.path` raises no error if the home folder is missing or inaccessible.
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
            yield Check(name, "warning", f"{error}", "fix it, or name the right file")
            continue
        wrapped = sum(state is True for state in servers.values())
        remote = sum(state is None for state in servers.values())
        plain = len(servers) - wrapped - remote
        says = f"{wrapped} of {len(servers)} servers behind the recorder, {remote} remote"
        advice = f"to record the other {plain}: mcptally wrap {as_argument(path)}" if plain else ""
        yield Check(name, "ok", says, advice)


def _store(path: Path) -> Iterator[Check]:
    name = f"store {path}"
    again = f"mcptally score ARCHIVE -o {as_argument(path)}"
    try:
        manifest = read_manifest(path)
        again = how_to_rebuild(path, manifest)
        written, scored_at = dict(manifest["rows"]), manifest["scored_at"]
        sources = {source.file: source.size for source in manifest["archive"]}
        if broken := fingerprint.damaged(path, manifest):
            yield Check(
                name, "error", f"{', '.join(broken)}: missing or changed since written", again
            )
            return
        names = {table.name for table in TABLES}
        rows = {
            table: sum(pq.read_metadata(file).num_rows for file in files)
            for table, files in live_files(path, manifest).items()
            if table in names
        }
    except (McptallyError, OSError, ValueError) as error:
        yield Check(name, "error", f"{error}", again)
        return
    except (KeyError, TypeError) as error:
        yield Check(name, "error", f"{MANIFEST} is damaged: {error!r}", again)
        return
    wrong = [kind for kind, count in written.items() if rows.get(kind) != count]
    if wrong:
        says = f"{', '.join(wrong)}: number of rows differs from {MANIFEST}"
        yield Check(name, "error", says, again)
    else:
        yield Check(name, "ok", f"{count(rows['calls'], 'call')}, scored {scored_at}")
    # Remote files are not checked: doctor does not use the network.
    changed = [file for file, size in sources.items() if not is_url(file) and _size(file) != size]
    if changed:
        says = f"{len(changed)} of {count(len(sources), 'file')} changed or missing"
        yield Check(f"{name}: archive", "warning", says, again)


def _size(file: str) -> int | None:
    try:
        return Path(file).stat().st_size
    except OSError:
        return None
