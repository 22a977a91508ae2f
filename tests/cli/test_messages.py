"""Wrong command lines and their messages: `messages.txt` is the golden file.

python -m tests.cli.test_messages      writes the golden file again; read what changed
"""

import contextlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.commands import run

ROOT: Final = Path(__file__).parents[2]
GOLDEN: Final = Path(__file__).with_name("messages.txt")


def prepare(folder: Path) -> None:
    """Create what the command lines name: recordings, stores, and files that are neither."""
    (folder / "traces").mkdir()
    for name in ("sqlite.jsonl.zst", "git.jsonl.zst"):
        (folder / "traces" / name).write_bytes((ROOT / "sample_traces" / name).read_bytes())
    run("score", folder / "traces", "-o", folder / "store")
    for name in ("empty", "damaged", "newer"):
        (folder / name).mkdir()
    for name, text in {
        "notes.txt": "some notes\n",
        "junk.jsonl": "not json\nat all\n",
        "empty.jsonl": "",
        "odd.jsonl": '{"a":1}\n{"b":2}\n',
        "lab.jsonl": '{"id":"x"}\n',
        "empty.json": "{}",
        "list.json": "[1]",
        "proxy.log": "listening\n" * 9 + '{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        "damaged/store.json": '{"format": 2',
        "newer/store.json": '{"format": 99}',
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, target in {"link": "nowhere", "loop": "loop"}.items():
        (folder / name).symlink_to(target)
    (folder / "cut.jsonl.zst").write_bytes(
        (folder / "traces" / "sqlite.jsonl.zst").read_bytes()[:700]
    )


def answers(folder: Path) -> str:
    """Return the golden file's command lines, each with its current exit code and output."""
    with contextlib.chdir(folder):
        said = []
        for line in GOLDEN.read_text(encoding="utf-8").splitlines():
            if line.startswith("$ "):
                done = run(*shlex.split(line)[2:])
                text = done.stderr.replace(os.fspath(folder), "FOLDER").rstrip()
                said.append(f"{line}\n[{done.returncode}] {text}\n")
    return "\n".join(said)


@pytest.mark.slow
def test_every_message_is_the_one_of_the_golden_file_and_no_command_leaves_a_file(tmp_path):
    prepare(tmp_path)
    before = set(tmp_path.iterdir())
    assert answers(tmp_path) == GOLDEN.read_text(encoding="utf-8")
    # An import says in a report what it did not use; `redact` leaves an empty folder.
    assert set(tmp_path.iterdir()) - before == {tmp_path / "imp", tmp_path / "r"}
    assert not list((tmp_path / "r").iterdir())


def test_every_message_begins_alike_and_shows_no_words_of_python_or_duckdb():
    foreign = ("Traceback", "Errno", "Error:", "Usage:", "Exception", "LINE 1")
    for entry in GOLDEN.read_text(encoding="utf-8").split("\n\n"):
        line, _, said = entry.partition("\n")
        assert said.partition("] ")[2].startswith("mcptally: "), line
        assert not any(word in said for word in foreign), entry


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name).resolve())
        GOLDEN.write_text(answers(Path(name).resolve()), encoding="utf-8")
