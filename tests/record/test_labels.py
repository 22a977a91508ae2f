"""The default label of a server."""

import pytest

from mcptally.record.server_label import label


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("mcp-server-time --local-timezone UTC", "mcp-server-time"),
        ("/usr/bin/server", "server"),
        ("npx -y @scope/server-memory x", "server-memory"),
        ("uvx mcp-server-git", "mcp-server-git"),
        ("uv run --quiet server.py", "server.py"),
        ("python -m my_server", "my_server"),
        ("NPX.CMD -y thing", "thing"),
        ("docker run -i --rm image/name:1", "name:1"),
        ("docker run -i -e API_TOKEN=abc -e HOME --name box image/name", "name"),
        ("podman run -v /a:/b --rm image/name", "name"),
        ("uv run --directory /srv/project server.py", "server.py"),
        ("uvx --from git+https://example.org/a/b served", "served"),
        ("npx -y https://example.org/a.tgz?token=abc", "npx"),
        ("node --require ./hook.js server.js", "server.js"),
        ("python3 -X dev -m my_server", "my_server"),
        ("python -c print('secret')", "python"),
        ("bun -e code()", "bun"),
        ("deno run -A server.ts", "server.ts"),
        ("node", "node"),
        ("/", "/"),
        ("", "server"),
    ],
)
def test_the_label_is_the_program_or_what_the_launcher_runs(command, wanted):
    assert label(command.split()) == wanted
