"""Inserts the recorder into the server commands of a client configuration, and removes it.

The module supports the JSON configurations of Claude Desktop, Claude Code, Cursor, VS Code, Zed,
opencode, Crush and Amp. A configuration's keys show which client it belongs to (see `entries`); its
path does not matter. For TOML and YAML (Codex, Goose, LibreChat, Continue), it only gives
instructions.

The text is edited in place. A backup next to the file contains the original; its name contains the
hash of the edited file. If the file has not been edited since, undo restores the original bytes.
"""

import dataclasses
import glob
import hashlib
import itertools
import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from mcptally.errors import UsageError
from mcptally.record.config.entries import (
    URL_KEYS,
    ServerEntry,
    expand_home,
    load_servers,
    recorder_argument_count,
    server_entries,
)
from mcptally.record.config.jsonc import Node, parse
from mcptally.redaction.policy import policy

_BACKUP_MARK: Final = ".mcptally-"


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A planned change to a configuration file."""

    path: Path
    """The configuration file, with symbolic links resolved."""
    before: str
    after: str
    """The file's whole text after the change; `before` is the text now."""
    messages: tuple[str, ...]
    """Messages for the user, at least one per server."""
    restored: bool = False
    """Whether `after` is the original file from the backup, byte for byte."""


def recorder_command() -> list[str]:
    """Return the command that runs this installation of mcptally, with an absolute path."""
    script = Path(sys.argv[0])
    if script.stem == "mcptally" and script.is_file() and script.suffix != ".py":
        return [str(script.absolute())]
    sibling = Path(sys.executable).with_name("mcptally")
    if sibling.is_file():
        return [str(sibling)]
    return [sys.executable, "-m", "mcptally"]


def default_out() -> Path:
    """Return the default folder for recordings on this platform.

    Raises:
        UsageError: the home folder is unknown.
    """
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return expand_home(Path(base)) / "mcptally" / "traces"


def wrap(
    config: Path, *, server: str | None = None, out: Path | None = None, redact: str | None = None
) -> Change:
    """Plan (without writing) the change that runs `config`'s stdio servers behind the recorder.

    Args:
        config: the configuration.
        server: name of a single server to change; by default all.
        out: folder for the recordings; default: `default_out()`.
        redact: the redaction policy, as for `record --redact`.

    Raises:
        UnreadableError: the file cannot be read.
        UsageError: the file is not a configuration with servers, the server or the policy does not
            exist, or the home folder is unknown.
    """
    if redact is not None:
        policy(redact)
    folder = expand_home(out or default_out()).absolute()
    options = ["record", f"--out={folder}"]
    options += [f"--redact={redact}"] if redact else []
    recorder = recorder_command()
    if config.suffix.lower() in _OTHER_FORMATS:
        raise UsageError(_edit_by_hand(config, recorder, options))
    path, text, servers = load_servers(config, server)
    edits: list[tuple[int, int, str]] = []
    messages = []
    for number, entry in enumerate(servers):
        server_edits, sentence = _wrap_server(
            text, entry, recorder, options, port=_FIRST_PORT + number
        )
        edits += server_edits
        messages.append(sentence)
    if edits:
        messages.append(
            f"restart the client; recordings go to {folder}: look at them with `mcptally {folder}`"
        )
    if edits and _CACHE_FOLDERS & set(Path(recorder[0]).parts):
        messages.append(
            f"{recorder[0]} is in a cache that may be cleared: install mcptally permanently"
        )
    return Change(path, text, _apply_edits(text, edits), tuple(messages))


_CACHE_FOLDERS: Final = {".cache", "Caches", "archive-v0"}
_FIRST_PORT: Final = 8765
"""The port proposed for the recorder of the first HTTP server in a file."""
_OTHER_FORMATS: Final = {
    ".toml": ("TOML, as in Codex", "[mcp_servers.NAME]", "command = {}", "args = [{}, …]"),
    ".yaml": (
        "YAML, as in Goose, LibreChat and Continue",
        "the entry NAME",
        "command: {} (Goose: cmd)",
        "args: [{}, …]",
    ),
}
_OTHER_FORMATS[".yml"] = _OTHER_FORMATS[".yaml"]
"""Maps suffixes of files that users edit by hand to the format and its clients, the entry to edit,
and the lines to add."""


def _edit_by_hand(config: Path, recorder: Sequence[str], options: Sequence[str]) -> str:
    """Return a message that explains how to edit a file that is not JSON."""
    form, entry, command, args = _OTHER_FORMATS[config.suffix.lower()]
    first = json.dumps(recorder[0], ensure_ascii=False)
    words = [*recorder[1:], *options, "--name=NAME", "--"]
    added = ", ".join([*(json.dumps(word, ensure_ascii=False) for word in words), "COMMAND"])
    return (
        f"{config}: is {form}; wrap edits JSON only. In {entry}, write `{command.format(first)}` "
        f"and `{args.format(added)}`: COMMAND is the command that was there, in quotes, and … are "
        "its arguments"
    )


def unwrap(config: Path, *, server: str | None = None) -> Change:
    """Plan (without writing) the change that removes the recorder from `config`.

    Raises:
        UnreadableError: the file cannot be read.
        UsageError: the file is not a configuration with servers, or the server does not exist.
    """
    if other := _OTHER_FORMATS.get(config.suffix.lower()):
        raise UsageError(
            f"{config}: is {other[0]}; wrap edits JSON only. Remove the words up to and including "
            "`--` by hand; the word after them is the command"
        )
    path, text, servers = load_servers(config, server)
    wrapped = [entry for entry in servers if recorder_argument_count(entry)]
    if not wrapped:
        return Change(path, text, text, ("no server in this file runs behind the recorder",))
    messages = [f"{entry.label}: recorder removed" for entry in wrapped]
    after = _without_recorder(text, wrapped)
    backup = _backup_of(path, text)
    if backup is not None and not any(
        recorder_argument_count(s) for s in server_entries(parse(after))
    ):
        before = backup.read_bytes().decode("utf-8")
        return Change(path, text, before, tuple(messages), restored=True)
    if backup is None:
        messages.append("the file was edited since, so only the recorder was removed from it")
        older = sorted(path.parent.glob(f"{glob.escape(path.name)}{_BACKUP_MARK}*.bak"))
        messages += [f"an older copy of the file is kept in {copy}" for copy in older]
    return Change(path, text, after, tuple(messages))


def status(config: Path) -> dict[str, bool | None]:
    """Map each server's label to whether the server runs behind the recorder.

    The value is None for a remote server, which has no command.

    Raises:
        UnreadableError: the file cannot be read.
        UsageError: the file is not a configuration with servers.
    """
    _, _, servers = load_servers(config, None)
    return {
        entry.label: bool(recorder_argument_count(entry)) if entry.node.get("command") else None
        for entry in servers
    }


def apply(change: Change) -> Path | None:
    """Write the change atomically and keep the file's permissions; return the backup, if any.

    Raises:
        UsageError: another program changed the file since it was read, or the file cannot be
            written.
    """
    path, after = change.path, change.after.encode()
    if change.after == change.before:
        return None
    try:
        if path.read_bytes() != change.before.encode():
            raise UsageError(f"{path}: was just changed by another program; try again")
        backup = _backup_of(path, change.before)
        new_backup = path.with_name(f"{path.name}{_BACKUP_MARK}{_hash(after)}.bak")
        if change.restored:
            _replace(path, after, like=path)
            if backup is not None:
                backup.unlink(missing_ok=True)
            return None
        if backup is not None:
            original = backup.read_bytes()
        else:
            wrapped = [
                s for s in server_entries(parse(change.before)) if recorder_argument_count(s)
            ]
            original = _without_recorder(change.before, wrapped).encode()
        if original == after:
            new_backup = path
        else:
            _replace(new_backup, original, like=path)
        _replace(path, after, like=path)
        if backup is not None and backup != new_backup:
            backup.unlink(missing_ok=True)
        return None if new_backup == path else new_backup
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def redacted_diff(change: Change) -> str:
    """Return the change as a unified diff with secrets masked."""
    import difflib  # noqa: PLC0415 - only this command needs it

    def masked(text: str) -> list[str]:
        return [
            line if len(line) <= _MAX_LINE_LENGTH else f"{line[:_MAX_LINE_LENGTH]}…\n"
            for line in _masked(text).splitlines(keepends=True)
        ]

    name = str(change.path)
    lines = difflib.unified_diff(masked(change.before), masked(change.after), name, name, n=2)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


_MAX_LINE_LENGTH: Final = 400


# --- edits --------------------------------------------------------------------------------------

_Edit = tuple[int, int, str]


def _apply_edits(text: str, edits: Iterable[_Edit]) -> str:
    out, last = [], 0
    for start, end, replacement in sorted(edits):
        out += [text[last:start], replacement]
        last = end
    return "".join([*out, text[last:]])


def _wrap_server(
    text: str, entry: ServerEntry, recorder: Sequence[str], options: Sequence[str], *, port: int
) -> tuple[list[_Edit], str]:
    command, args = entry.command, entry.arguments
    if command is None:
        return [], _record_by_http(entry, options, port)
    if recorder_argument_count(entry):
        return [], f"{entry.label}: already runs behind the recorder"
    arguments = args.strings() if args else []
    if arguments is None or not (isinstance(command.value, str) or command.strings()):
        return [], f"{entry.label}: its command or arguments are not strings; it was not changed"
    added = [json.dumps(word, ensure_ascii=False) for word in
             (*recorder[1:], *options, f"--name={entry.name}", "--")]  # fmt: skip
    first_word = json.dumps(recorder[0], ensure_ascii=False)
    done = f"{entry.label}: recorder added"
    if command.items:
        start = command.items[0].start
        return [(start, start, f"{', '.join([first_word, *added])}, ")], done
    added.append(text[command.start : command.end])
    edits = [(command.start, command.end, first_word)]
    if args is None:
        edits = [(command.start, command.end, f'{first_word}, "args": [{", ".join(added)}]')]
    elif args.items:
        first = args.items[0].start
        # If the first argument starts a new line, also insert a line break after the recorder's
        # arguments.
        gap = text[args.start + 1 : first]
        gap = gap if gap.isspace() and "\n" in gap else " "
        edits.append((first, first, f"{', '.join(added)},{gap}"))
    else:
        edits.append((args.start, args.end, f"[{', '.join(added)}]"))
    return edits, done


def _record_by_http(entry: ServerEntry, options: Sequence[str], port: int) -> str:
    """Return a message that explains how to record a server over HTTP."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - few files need it

    key = next(key for key in URL_KEYS if entry.node.get(key))
    found = entry.node.get(key)
    url = found.value if found is not None and isinstance(found.value, str) else ""
    path = urlsplit(url).path if url.isprintable() and "[" not in url else ""
    address = f"127.0.0.1:{port}"
    words = ["mcptally", *options, f"--name={entry.name}", "--url", policy("default").url(url)[0],
             "--listen", address]  # fmt: skip
    return (
        f"{entry.label}: uses HTTP and was not changed; to record it, run `{shlex.join(words)}` "
        f"and write http://{address}{policy('default').url(path)[0]} as its {key}"
    )


def _without_recorder(text: str, servers: Iterable[ServerEntry]) -> str:
    """Remove the recorder from the entries of `servers` in a configuration's text."""
    edits: list[_Edit] = []
    for entry in servers:
        count = recorder_argument_count(entry)
        command, args = entry.command, entry.arguments
        if count is not None and command is not None and command.items is not None:
            edits.append((command.items[0].start, command.items[count + 1].start, ""))
            continue
        if count is None or command is None or args is None or args.items is None:
            continue
        original, rest = args.items[count], args.items[count + 1 :]
        edits.append((command.start, command.end, text[original.start : original.end]))
        # If no argument is left, remove a trailing comma too.
        end = rest[0].start if rest else args.end - 1
        edits.append((args.items[0].start, end, ""))
    return _apply_edits(text, edits)


# --- files --------------------------------------------------------------------------------------


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _backup_of(path: Path, text: str) -> Path | None:
    """Return the path of the backup whose name contains this text's hash; None if there is none."""
    backup = path.with_name(f"{path.name}{_BACKUP_MARK}{_hash(text.encode())}.bak")
    return backup if backup.is_file() else None


def _replace(path: Path, data: bytes, *, like: Path) -> None:
    """Write a file atomically, with the owner and permissions of the file `like`."""
    status = like.stat()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), status.st_mode & 0o7777)
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


# --- masking of secrets --------------------------------------------------------------------------

_SECRET_TABLES: Final = ("env", "environment", "headers", "requestInit")
"""Keys of an entry under which all text is masked."""


def _masked(text: str) -> str:
    """Mask environment variables' values, header values and detected secrets in a configuration."""
    redaction = policy("default")
    edits: dict[int, _Edit] = {}

    def mask(node: Node, replacement: str) -> None:
        if node.value != replacement:
            edits[node.start] = (node.start, node.end, json.dumps(replacement, ensure_ascii=False))

    for entry in server_entries(parse(text)):
        command = entry.node.get("command")
        places = [entry.node] if command is None or not command.members else [entry.node, command]
        for place, name in itertools.product(places, _SECRET_TABLES):
            for node in found.walk() if (found := place.get(name)) else ():
                if isinstance(node.value, str):
                    mask(node, "***")
        words = [node for node in entry.words if isinstance(node.value, str)]
        for node, word in zip(words, redaction.argv([n.value for n in words])[0], strict=True):
            mask(node, word)
        for name in URL_KEYS:
            if (found := entry.node.get(name)) and isinstance(found.value, str):
                mask(found, redaction.url(found.value)[0])
    masked = _apply_edits(text, edits.values())
    return redaction.text(masked.encode())[0].decode(errors="replace")
