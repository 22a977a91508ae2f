import pytest

from mcptally.record.labels import label


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
        ("node", "node"),
        ("/", "/"),
        ("", "server"),
    ],
)
def test_a_server_is_called_by_its_program_or_what_the_launcher_runs(command, wanted):
    assert label(command.split()) == wanted
