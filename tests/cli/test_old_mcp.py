"""Commands in an environment with version 1 of the package mcp."""

import importlib.metadata

import pytest

from tests.commands import run


@pytest.mark.parametrize("command", ["serve", "mock"])
def test_a_command_that_needs_mcp_2_says_so_beside_mcp_1(command, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.30.0")
    done = run(command, tmp_path)
    assert done.returncode == 2
    assert (
        f"`mcptally {command}` needs mcp 2.3 or newer, and mcp 1.30.0 is installed" in done.stderr
    )
