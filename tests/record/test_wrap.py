"""`wrap` inserts the recorder into a client configuration, and undo restores the file."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mcptally.cli.wrap import command as wrap_command
from mcptally.errors import UnreadableError, UsageError
from mcptally.record.config.jsonc import JsoncError, parse
from mcptally.record.config.wrap import (
    apply,
    default_out,
    recorder_command,
    redacted_diff,
    unwrap,
    wrap,
)
from tests.commands import run
from tests.strategies import JSON_VALUES

CONFIGS = {
    path.stem: path.read_bytes().decode()
    for path in sorted(Path(__file__).with_name("configurations").iterdir())
}
"""Client → its configuration; the secrets in them begin with `s3cr3t`."""
CLAUDE = CONFIGS["claude"]

every_config = pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "config.json"
        path.write_bytes(text.encode())
        return path

    return write


def servers(text):
    """Return the command and arguments of every server, by name."""
    found = {}
    for node in parse(text).walk():
        for name, member in node.members or ():
            if member.members is not None and member.get("command"):
                place = member
                if member.get("command").members is not None:
                    place = member.get("command")
                args = place.get("args")
                first = place.get("path") or place.get("command")
                command = first.strings() or [first.value, *(args.strings() if args else [])]
                found.setdefault(name, []).append(command)
    return found


@every_config
def test_every_stdio_server_runs_behind_the_recorder(config, text, tmp_path):
    change = wrap(config(text), out=tmp_path / "t")
    before, after = servers(text), servers(change.after)
    assert before.keys() == after.keys()
    for name, commands in before.items():
        options = ["record", f"--out={tmp_path / 't'}", f"--name={name}", "--"]
        assert after[name] == [[*recorder_command(), *options, *command] for command in commands]


@every_config
def test_nothing_but_the_command_changes(config, text):
    def without_empty_arguments(text):
        # Only the backup knows whether the empty list was there before.
        return text.replace("[ ]", "[]").replace(', "args": []', "").replace(', "args" : []', "")

    again = unwrap(config(wrap(config(text)).after)).after
    assert without_empty_arguments(again) == without_empty_arguments(text)


def test_arguments_on_separate_lines_stay_on_them(config):
    lines = [line.strip() for line in wrap(config(CLAUDE), server="files").after.splitlines()]
    at = lines.index('"-y",')
    assert lines[at + 1] == '"@modelcontextprotocol/server-filesystem",'


@every_config
def test_undo_restores_the_file_to_the_byte_and_leaves_no_backup(config, text, tmp_path):
    path = config(text)
    backup = apply(wrap(path))
    assert backup is not None
    assert backup.read_bytes() == text.encode()
    assert path.read_bytes() != text.encode()
    assert apply(unwrap(path)) is None
    assert path.read_bytes() == text.encode()
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


@every_config
def test_wrapping_twice_changes_nothing(config, text):
    path = config(text)
    apply(wrap(path))
    again = wrap(path)
    assert again.after == again.before
    assert any("already" in sentence for sentence in again.messages)
    assert apply(again) is None


def test_undo_server_by_server_restores_every_byte(config, tmp_path):
    path = config(CLAUDE)
    apply(wrap(path, server="files"))
    assert servers(path.read_text())["none"] == [["uvx"]]
    apply(wrap(path, server="none"))
    apply(unwrap(path, server="files"))
    assert servers(path.read_text())["files"] == servers(CLAUDE)["files"]
    apply(unwrap(path, server="none"))
    assert path.read_bytes() == CLAUDE.encode()
    assert len(list(tmp_path.iterdir())) == 1


def test_undo_after_an_edit_removes_only_the_recorder_and_reports_it(config):
    path = config(CLAUDE)
    backup = apply(wrap(path))
    edited = path.read_text().replace('"globalShortcut": ""', '"globalShortcut": "F1"')
    path.write_text(edited)
    change = unwrap(path)
    apply(change)
    assert not change.restored
    assert any("edited since" in sentence for sentence in change.messages)
    assert any(str(backup) in sentence for sentence in change.messages)
    assert '"F1"' in path.read_text()
    assert servers(path.read_text()) == servers(CLAUDE)
    assert backup.read_bytes() == CLAUDE.encode()


def test_an_http_server_is_not_changed_and_a_message_says_how_to_record_it(config, tmp_path):
    change = wrap(config(CLAUDE), server="far", out=tmp_path)
    assert change.after == change.before
    (sentence,) = change.messages
    assert f"`mcptally record --out={tmp_path} --name=far --url " in sentence
    assert "--listen 127.0.0.1:8765` and write http://127.0.0.1:8765/mcp as its url" in sentence
    assert "s3cr3t" not in sentence


def test_a_message_says_where_recordings_go_and_what_to_run_next(config, tmp_path):
    sentence = wrap(config(CLAUDE), out=tmp_path / "t").messages[-1]
    assert sentence.endswith(f"recordings go to {tmp_path / 't'}: look at them with "
                             f"`mcptally {tmp_path / 't'}`")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "client", "edit"),
    [
        ("config.toml", "Codex", "In [mcp_servers.NAME], write `command = "),
        ("config.yaml", "Goose", "write `command: "),
        ("librechat.yml", "LibreChat", "write `command: "),
    ],
)
def test_a_file_in_toml_or_yaml_is_refused_with_the_edit_to_make(tmp_path, name, client, edit):
    with pytest.raises(UsageError) as wrapped:
        wrap(tmp_path / name, out=tmp_path / "t")
    assert client in str(wrapped.value)
    assert edit in str(wrapped.value)
    assert f'"record", "--out={tmp_path / "t"}", "--name=NAME", "--", COMMAND, …' in str(
        wrapped.value
    )
    with pytest.raises(UsageError, match="Remove the words up to and including `--`"):
        unwrap(tmp_path / name)


@every_config
def test_the_diff_shows_the_change_and_no_secret(config, text):
    change = wrap(config(text))
    diff = redacted_diff(change)
    assert any(line.startswith("+") and "record" in line for line in diff.splitlines())
    assert "s3cr3t" not in diff
    assert "s3cr3t" not in "".join(change.messages)


def test_permissions_and_symbolic_links_are_kept(config, tmp_path):
    path = config(CLAUDE)
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    backup = apply(wrap(link))
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o640


def test_a_file_that_changed_in_the_meantime_is_not_overwritten(config):
    path = config(CLAUDE)
    change = wrap(path)
    path.write_text(CLAUDE + "\n")
    with pytest.raises(UsageError, match="another program"):
        apply(change)
    assert path.read_text() == CLAUDE + "\n"


REFUSED = {
    "no such file": (None, UnreadableError, "no such file"),
    "not JSON": ("{a}", UsageError, "line 1: expected a name"),
    "no servers": ('{"a": 1}', UsageError, "names no servers"),
    "not text": ("\udcff", UsageError, "not UTF-8"),
    "truncated": (CLAUDE[:80], UsageError, "is not JSON"),
    "nested too deep": ("[" * 100_000, UsageError, "too deep"),
}


@pytest.mark.parametrize(("text", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_not_a_configuration_is_refused_with_a_reason(tmp_path, text, error, said):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    for do in (wrap, unwrap):
        with pytest.raises(error, match=said):
            do(path)


def test_a_path_that_does_not_exist_is_refused_with_a_reason(tmp_path, config):
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    with pytest.raises(UnreadableError, match="circle: "):
        wrap(circle)
    with pytest.raises(UsageError, match="there is no such home folder"):
        wrap(Path("~no-such-user/mcp.json"))
    with pytest.raises(UsageError, match="there is no such home folder"):
        wrap(config(CLAUDE), out=Path("~no-such-user/traces"))


def test_an_unknown_home_folder_is_an_error(monkeypatch, config):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(
        os, "getuid", lambda: 2**31 - 7
    )  # a user without an entry, as in some containers
    with pytest.raises(UsageError, match="no such home folder"):
        wrap(config(CLAUDE))


def test_undo_leaves_no_comma_where_no_argument_is_left(config):
    written = '{"mcpServers": {"a": {"command": "mcptally", "args": ["record", "--", "x",]}}}'
    change = unwrap(config(written))
    assert servers(change.after) == {"a": [["x"]]}


def test_control_characters_of_a_configuration_do_not_reach_the_terminal(config):
    path = config('{"mcpServers": {"a": {"command": "x"}} // \x1b[2J\u202e\n}')
    done = CliRunner().invoke(wrap_command, [str(path), "--dry-run"], color=True)
    assert done.exit_code == 0
    assert "\ufffd[2J\ufffd" in done.stdout
    assert not {"\x1b", "\u202e"} & set(done.output)


def test_a_misspelt_server_is_refused_with_the_existing_names(config):
    with pytest.raises(UsageError, match="did you mean files"):
        wrap(config(CLAUDE), server="file")


def test_an_entry_with_other_types_is_not_changed(config):
    others = {"a": {"command": ["x", 1]}, "b": {"command": 1, "args": 2}, "c": {"command": "x"}}
    change = wrap(config(json.dumps({"mcpServers": {**others, "c": {**others["c"], "args": {}}}})))
    assert change.after == change.before
    assert all("not strings" in sentence for sentence in change.messages)


def test_the_default_folder_is_the_data_folder_of_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_out() == tmp_path / "mcptally" / "traces"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Application Support" in default_out().parts


def test_the_command_wraps_dry_runs_and_undoes(config):
    path = config(CLAUDE)
    dry = run("wrap", path, "--dry-run")
    assert (dry.returncode, path.read_text()) == (0, CLAUDE)
    assert "now" not in dry.stderr  # nothing has changed yet
    done = run("wrap", path)
    assert done.stdout == dry.stdout
    assert "s3cr3t" not in done.stdout + done.stderr
    assert path.read_text() != CLAUDE
    assert run("wrap", path, "--undo").returncode == 0
    assert path.read_text() == CLAUDE
    assert run("wrap", path, "--server", "x").returncode == 2
    assert run("wrap", path, "--undo").stderr.endswith("nothing to change\n")


def test_a_wrapped_server_answers_and_is_recorded(config, tmp_path):
    server = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    entry = {"command": sys.executable, "args": ["-c", server]}
    path = config(json.dumps({"mcpServers": {"echo": entry}}, indent=2))
    apply(wrap(path, out=tmp_path / "traces"))
    wrapped = json.loads(path.read_text())["mcpServers"]["echo"]
    assert Path(wrapped["command"]).is_absolute()
    ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    done = subprocess.run([wrapped["command"], *wrapped["args"]], input=ping, text=True,
                          capture_output=True, check=False, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ping)
    (trace,) = (tmp_path / "traces").iterdir()
    assert trace.name.startswith("echo-")


@given(JSON_VALUES, st.sampled_from([None, 2]))
def test_parsed_values_have_their_positions_in_the_text(value, indent):
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    for node in parse(text).walk():
        if node.members is None and node.items is None:
            assert json.loads(text[node.start : node.end]) == node.value
    assert parse(f"/*a*/ {text} // b").end == len(text) + 6


@given(st.text(st.sampled_from('{}[]",:/*\\ \n-1truefalsn'), max_size=40))
def test_any_text_is_parsed_or_gives_an_error_with_the_line(text):
    try:
        node = parse(text)
    except JsoncError:
        with pytest.raises(JsoncError, match=r"^line \d+: "):
            parse(text)
    else:
        assert 0 <= node.start < node.end <= len(text)
