"""Puts the recorder before the servers of a client's configuration, and takes it out again.

Known are the configurations of Claude Desktop, Claude Code, Cursor and VS Code, by their shape and
not by their place: `mcpServers`, `projects.*.mcpServers`, `servers`, `mcp.servers`. The text is
edited, never written anew. The file as it was is kept beside it, in a backup whose name holds the
hash of what was written instead: as long as nobody edited that, undoing restores every byte.
"""

import dataclasses
import glob
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mcptally.errors import UnreadableError, UsageError, near
from mcptally.record.config.jsonc import JsoncError, Node, parse
from mcptally.redaction.policy import policy

_MARK: Final = ".mcptally-"


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What is to be done to a configuration."""

    path: Path
    """The file itself, where a link was named."""
    before: str
    after: str
    """Its whole text, as it is now and as it is to be."""
    said: tuple[str, ...]
    """A sentence for every server."""
    restored: bool = False
    """`after` is the file as it was before the recorder came, to the byte."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Server:
    name: str
    where: str
    node: Node

    @property
    def label(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


def recorder() -> list[str]:
    """The command that starts this mcptally again from anywhere, by absolute path."""
    script = Path(sys.argv[0])
    if script.stem == "mcptally" and script.is_file() and script.suffix != ".py":
        return [str(script.absolute())]
    beside = Path(sys.executable).with_name("mcptally.exe" if os.name == "nt" else "mcptally")
    if beside.is_file():
        return [str(beside)]
    return [sys.executable, "-m", "mcptally"]


def default_out() -> Path:
    """Where recordings go on this platform when nobody says otherwise.

    Raises:
        UsageError: nobody knows where home is.
    """
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
    elif os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return _expanded(Path(base)) / "mcptally" / "traces"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:  # no HOME, or no user of that name
        raise UsageError(f"{path}: there is no such home folder; name another path") from error


def wrap(
    config: Path, *, server: str | None = None, out: Path | None = None, redact: str | None = None
) -> Change:
    """What puts the recorder before every stdio server of `config`, or before one; writes nothing.

    Args:
        config: the configuration.
        server: name of one server; all of them without it.
        out: folder for the recordings; that of `default_out` without it.
        redact: the recorder's policy, as `record --redact` takes it.

    Raises:
        UnreadableError: the file cannot be read.
        UsageError: it is no configuration with servers, or has no such server; a bad policy; there
            is no such home folder.
    """
    if redact is not None:
        policy(redact)
    path, text, servers = _load(config, server)
    options = ["record", f"--out={_expanded(out or default_out()).absolute()}"]
    options += [f"--redact={redact}"] if redact else []
    edits: list[tuple[int, int, str]] = []
    said = []
    start = recorder()
    for entry in servers:
        own, sentence = _put_in(text, entry, start, options)
        edits += own
        said.append(sentence)
    if edits and _CACHE & set(Path(start[0]).parts):
        said.append(f"{start[0]} lies in a cache that may be cleaned: install mcptally to stay")
    return Change(path, text, _edited(text, edits), tuple(said))


_CACHE: Final = {".cache", "Caches", "archive-v0"}


def unwrap(config: Path, *, server: str | None = None) -> Change:
    """What takes the recorder out of `config` again; writes nothing.

    Raises:
        UnreadableError: the file cannot be read.
        UsageError: it is no configuration with servers, or has no such server.
    """
    path, text, servers = _load(config, server)
    wrapped = [entry for entry in servers if _inside(entry.node)]
    if not wrapped:
        return Change(path, text, text, ("no server there runs behind the recorder",))
    said = [f"{entry.label}: runs without the recorder again" for entry in wrapped]
    after = _without(text, wrapped)
    backup = _backup(path, text)
    if backup is not None and not any(_inside(s.node) for s in _servers(parse(after))):
        before = backup.read_bytes().decode("utf-8")
        return Change(path, text, before, tuple(said), restored=True)
    if backup is None:
        said.append("the file was edited since, so only the recorder was taken out of it")
        older = sorted(path.parent.glob(f"{glob.escape(path.name)}{_MARK}*.bak"))
        said += [f"an older copy of the file is kept in {copy}" for copy in older]
    return Change(path, text, after, tuple(said))


def status(config: Path) -> dict[str, bool | None]:
    """Each server of `config`, by its label, and whether it runs behind the recorder.

    None: it has no command, so it is remote.

    Raises:
        UnreadableError: the file cannot be read.
        UsageError: it is no configuration with servers.
    """
    _, _, servers = _load(config, None)
    return {
        entry.label: bool(_inside(entry.node)) if entry.node.get("command") else None
        for entry in servers
    }


def apply(change: Change) -> Path | None:
    """Write the change, atomically and with the file's own permissions; the backup that is kept.

    Raises:
        UsageError: the file was changed by somebody else in the meantime, or cannot be written.
    """
    path, after = change.path, change.after.encode()
    if change.after == change.before:
        return None
    try:
        if path.read_bytes() != change.before.encode():
            raise UsageError(f"{path}: was changed by another program just now; try again")
        backup = _backup(path, change.before)
        kept = path.with_name(f"{path.name}{_MARK}{_hash(after)}.bak")
        if change.restored:
            _replace(path, after, like=path)
            if backup is not None:
                backup.unlink(missing_ok=True)
            return None
        if backup is not None:
            original = backup.read_bytes()
        else:
            wrapped = [s for s in _servers(parse(change.before)) if _inside(s.node)]
            original = _without(change.before, wrapped).encode()
        if original == after:
            kept = path
        else:
            _replace(kept, original, like=path)
        _replace(path, after, like=path)
        if backup is not None and backup != kept:
            backup.unlink(missing_ok=True)
        return None if kept == path else kept
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def shown(change: Change) -> str:
    """The change as a unified diff that shows no secrets of the configuration."""
    import difflib  # noqa: PLC0415 - only this command needs it

    def masked(text: str) -> list[str]:
        return [
            line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…\n"
            for line in _masked(text).splitlines(keepends=True)
        ]

    name = str(change.path)
    lines = difflib.unified_diff(masked(change.before), masked(change.after), name, name, n=2)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


_LONGEST: Final = 400


# --- finding servers ----------------------------------------------------------------------------


def _load(config: Path, server: str | None) -> tuple[Path, str, list[_Server]]:
    try:
        path = _expanded(config).resolve()  # a link stays a link: its target is edited
        text = path.read_bytes().decode("utf-8")
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        why = getattr(error, "strerror", None) or error
        raise UnreadableError(f"{config}: {why}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{config}: is not UTF-8 text") from error
    try:
        servers = list(_servers(parse(text)))
    except JsoncError as error:
        raise UsageError(f"{config}: is not JSON: {error}") from error
    if not servers:
        raise UsageError(
            f"{config}: names no servers (looked for mcpServers, servers, mcp.servers and "
            "projects.*.mcpServers)"
        )
    if server is not None:
        names = {entry.name for entry in servers}
        servers = [entry for entry in servers if entry.name == server]
        if not servers:
            raise UsageError(
                f"{config}: has no server {server!r}{near(server, names)} "
                f"(there are {', '.join(sorted(names))})"
            )
    return path, text, servers


def _servers(root: Node) -> Iterator[_Server]:
    mcp = root.get("mcp")
    maps = [
        (root.get("mcpServers"), ""),
        (root.get("servers"), ""),
        (root.get("mcp.servers"), ""),
        (mcp.get("servers") if mcp else None, ""),
        (mcp.get("mcpServers") if mcp else None, ""),
    ]
    projects = root.get("projects")
    for project, node in (projects.members if projects else None) or ():
        maps.append((node.get("mcpServers"), project))
    for table, where in maps:
        for name, node in (table.members if table else None) or ():
            if node.members is not None and any(node.get(k) for k in ("command", *_REMOTE)):
                yield _Server(name, where, node)


_REMOTE: Final = ("url", "serverUrl", "httpUrl")


def _inside(entry: Node) -> int | None:
    """How many arguments belong to the recorder, if the entry runs behind it (with the `--`)."""
    command, args = entry.get("command"), entry.get("args")
    words = args.strings() if args else None
    if command is None or not isinstance(command.value, str) or not words:
        return None
    name = command.value.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
    begin = 2 if words[:2] == ["-m", "mcptally"] else 0 if name == "mcptally" else -1
    if begin < 0 or words[begin : begin + 1] != ["record"] or "--" not in words[:-1]:
        return None
    return words.index("--") + 1


# --- edits --------------------------------------------------------------------------------------

_Edit = tuple[int, int, str]


def _edited(text: str, edits: Iterable[_Edit]) -> str:
    out, last = [], 0
    for start, end, instead in sorted(edits):
        out += [text[last:start], instead]
        last = end
    return "".join([*out, text[last:]])


def _put_in(
    text: str, entry: _Server, start: Sequence[str], options: Sequence[str]
) -> tuple[list[_Edit], str]:
    node = entry.node
    command, args = node.get("command"), node.get("args")
    if command is None:
        return [], (
            f"{entry.label}: is reached over HTTP and was left alone; to record it, run "
            "`mcptally record --url URL --listen 127.0.0.1:PORT` and put that address here"
        )
    if _inside(node):
        return [], f"{entry.label}: runs behind the recorder already"
    words = args.strings() if args else []
    if not isinstance(command.value, str) or words is None:
        return [], f"{entry.label}: its command or arguments are no texts; it was left alone"
    added = [json.dumps(word, ensure_ascii=False) for word in
             (*start[1:], *options, f"--name={entry.name}", "--")]  # fmt: skip
    added.append(text[command.start : command.end])
    first_word = json.dumps(start[0], ensure_ascii=False)
    edits = [(command.start, command.end, first_word)]
    if args is None:
        edits = [(command.start, command.end, f'{first_word}, "args": [{", ".join(added)}]')]
    elif args.items:
        first = args.items[0].start
        # Where the first argument has a line of its own, the recorder's get one too.
        gap = text[args.start + 1 : first]
        gap = gap if gap.isspace() and "\n" in gap else " "
        edits.append((first, first, f"{', '.join(added)},{gap}"))
    else:
        edits.append((args.start, args.end, f"[{', '.join(added)}]"))
    return edits, f"{entry.label}: runs behind the recorder"


def _without(text: str, servers: Iterable[_Server]) -> str:
    """The text with the recorder taken out of these entries."""
    edits: list[_Edit] = []
    for entry in servers:
        own = _inside(entry.node)
        command, args = entry.node.get("command"), entry.node.get("args")
        if own is None or command is None or args is None or args.items is None:
            continue
        original, rest = args.items[own], args.items[own + 1 :]
        edits.append((command.start, command.end, text[original.start : original.end]))
        # Where nothing is left, a comma behind the last one must go with it.
        end = rest[0].start if rest else args.end - 1
        edits.append((args.items[0].start, end, ""))
    return _edited(text, edits)


# --- files --------------------------------------------------------------------------------------


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _backup(path: Path, text: str) -> Path | None:
    """The backup that belongs to exactly this text."""
    backup = path.with_name(f"{path.name}{_MARK}{_hash(text.encode())}.bak")
    return backup if backup.is_file() else None


def _replace(path: Path, data: bytes, *, like: Path) -> None:
    """Write a file whole or not at all, with owner and permissions of another."""
    status = like.stat()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if os.name != "nt":
                os.fchmod(file.fileno(), status.st_mode & 0o7777)
                if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


# --- what may be shown --------------------------------------------------------------------------


def _masked(text: str) -> str:
    """The configuration without environment, header values, and whatever looks like a secret."""
    hide = policy("default")
    edits: dict[int, _Edit] = {}

    def mask(node: Node, instead: str) -> None:
        if node.value != instead:
            edits[node.start] = (node.start, node.end, json.dumps(instead, ensure_ascii=False))

    for entry in _servers(parse(text)):
        for name in ("env", "headers", "requestInit"):
            for node in found.walk() if (found := entry.node.get(name)) else ():
                if isinstance(node.value, str):
                    mask(node, "***")
        args = entry.node.get("args")
        words = (args.strings() if args else None) or []
        if args is not None and args.items:
            for node, word in zip(args.items, hide.argv(words)[0], strict=False):
                mask(node, word)
        for name in _REMOTE:
            if (found := entry.node.get(name)) and isinstance(found.value, str):
                mask(found, hide.url(found.value)[0])
    masked = _edited(text, edits.values())
    return hide.text(masked.encode())[0].decode(errors="replace")
