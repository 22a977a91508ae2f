"""Finds the servers in a client configuration, and checks whether they run behind the recorder.

The configuration's keys show which client it belongs to (`server_entries`); its path does not
matter.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mcptally.errors import UnreadableError, UsageError, near, reason
from mcptally.record.config.jsonc import JsoncError, Node, parse


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server in a client configuration.

    Attributes:
        name: the server's name in the configuration.
        project: the project that the entry belongs to; empty for all projects.
        node: the entry's value, with its position in the text.
    """

    name: str
    project: str
    node: Node

    @property
    def label(self) -> str:
        """The server's name, followed by its project if it has one."""
        return f"{self.name} ({self.project})" if self.project else self.name

    @property
    def command(self) -> Node | None:
        """The node of the command: a string, or a list with the arguments (opencode)."""
        command = self.node.get("command")
        return (command.get("path") or command) if command and command.members else command

    @property
    def arguments(self) -> Node | None:
        """The list of arguments; in Zed it may be inside `command`."""
        command = self.node.get("command")
        return (command if command and command.members else self.node).get("args")

    @property
    def words(self) -> list[Node]:
        """The nodes of the command's words: program and arguments."""
        command, arguments = self.command, self.arguments
        if command is None:
            return []
        if command.items is not None:
            return list(command.items)
        return [command, *((arguments.items if arguments else None) or ())]


def load_servers(config: Path, server: str | None) -> tuple[Path, str, list[ServerEntry]]:
    """Return a configuration's resolved path, text and servers.

    Args:
        config: the configuration file.
        server: if given, return only entries with this name.

    Raises:
        UnreadableError: the file cannot be read.
        UsageError: the file is not UTF-8 text or not JSON, or has no server with this name.
    """
    try:
        path = expand_home(config).resolve()  # edit the target of a symbolic link, not the link
        text = path.read_bytes().decode("utf-8")
    except (OSError, RuntimeError) as error:  # RuntimeError: the path is a symbolic link to itself
        raise UnreadableError(f"{config}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{config}: is not UTF-8 text") from error
    try:
        servers = list(server_entries(parse(text)))
    except JsoncError as error:
        raise UsageError(f"{config}: is not JSON: {error}") from error
    if not servers:
        raise UsageError(
            f"{config}: names no servers (looked for mcpServers, servers, context_servers, "
            "amp.mcpServers, mcp, mcp.servers and projects.*.mcpServers)"
        )
    if server is not None:
        names = {entry.name for entry in servers}
        servers = [entry for entry in servers if entry.name == server]
        if not servers:
            raise UsageError(
                f"{config}: has no server {server!r}{near(server, names)}"
                f"; there are: {', '.join(sorted(names))}"
            )
    return path, text, servers


def server_entries(root: Node) -> Iterator[ServerEntry]:
    """Yield the servers under each key that a supported client uses."""
    mcp = root.get("mcp")
    maps: list[tuple[Node | None, str]] = [
        (root.get("mcpServers"), ""),
        (root.get("servers"), ""),
        (root.get("mcp.servers"), ""),
        (mcp.get("servers") if mcp else None, ""),
        (mcp.get("mcpServers") if mcp else None, ""),
        (root.get("context_servers"), ""),  # Zed
        (root.get("amp.mcpServers"), ""),
        (mcp, ""),  # opencode and Crush
    ]
    projects = root.get("projects")
    for project, node in (projects.members if projects else None) or ():
        maps.append((node.get("mcpServers"), project))
    for table, project in maps:
        for name, node in (table.members if table else None) or ():
            if table is mcp and name in {"servers", "mcpServers"}:
                continue
            if node.members is not None and any(node.get(k) for k in ("command", *URL_KEYS)):
                yield ServerEntry(name, project, node)


URL_KEYS: Final = ("url", "serverUrl", "httpUrl")


def recorder_argument_count(entry: ServerEntry) -> int | None:
    """Return the number of arguments before the server's command, including `--`.

    Returns None if the command does not run the recorder.
    """
    words = [node.value for node in entry.words]
    if not words or not all(isinstance(word, str) for word in words):
        return None
    name, arguments = words[0], words[1:]
    name = name.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
    begin = 2 if arguments[:2] == ["-m", "mcptally"] else 0 if name == "mcptally" else -1
    if begin < 0 or arguments[begin : begin + 1] != ["record"] or "--" not in arguments[:-1]:
        return None
    return arguments.index("--") + 1


def expand_home(path: Path) -> Path:
    """Return the path with `~` replaced.

    Raises:
        UsageError: there is no home folder.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:  # HOME is unset, or the user does not exist
        raise UsageError(f"{path}: there is no such home folder; name another path") from error
