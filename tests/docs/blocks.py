"""The code blocks of README.md and docs/, and the files and commands that they run with.

python -m tests.docs.blocks      runs them and writes the outputs that pages show anew

A page's blocks run in order in one folder. What a comment on the line before a block may say is
in docs/CONTRIBUTING.md; a block that cannot run says why, in words of `REASONS`.
"""

import contextlib
import dataclasses
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import mcptally as mt
from tests.commands import run as run_command
from tests.importers import styles
from tests.importers.imported_logs import events

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])

REASONS: Final = {
    "network": "it fetches something, or talks to a server elsewhere",
    "until stopped": "it runs until somebody stops it",
    "another program": "it needs a program that is neither ours nor a test's",
    "minutes": "it takes minutes, or changes the repository",
    "ci": ".ci/run runs it, on a fresh clone",
}
"""Why a block may say `<!-- not run: WORDS -->`. The mcptally commands in it are parsed all the
same."""

RUNNABLE: Final = ("sh", "python", "sql")
SHOWN: Final = ("text",)
"""Languages of blocks that are not code: drawings, forms, output."""
DATA: Final = ("toml", "yaml", "json")

BARE: Final = ("docs/tutorial.md",)
"""Pages that create all files that they need; the others get traces and stores."""

BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*?) -->\n+)?^(?P<indent> *)```(?P<kind>\w*)\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: the comment before it, its language, text and position."""

    mark: str
    kind: str
    code: str
    line: int
    span: tuple[int, int]

    @property
    def why_not(self) -> str | None:
        """The reason why it is not run; None if it is run."""
        if self.mark in ("first", "tests"):
            return "ci"
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else None

    @property
    def file(self) -> str | None:
        """The name of the file to which the block is written."""
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else None

    @property
    def exits(self) -> int:
        """The expected exit code."""
        return int(self.mark.removeprefix("exits ")) if self.mark.startswith("exits ") else 0


def prose(page: Path) -> str:
    """The text of a page without its blocks."""
    fenced = re.compile(r"^ *```.*?^ *```", flags=re.MULTILINE | re.DOTALL)
    return fenced.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        indent = match["indent"]
        code = "".join(
            line.removeprefix(indent) for line in match["code"].splitlines(keepends=True)
        )
        line = text.count("\n", 0, match.start("kind")) + 1
        span = match.span("code")
        found.append(Block((match["mark"] or "").strip(), match["kind"], code, line, span))
    return found


def runs(page: Path) -> bool:
    """Whether the page has a block to run."""
    return any(b.kind in RUNNABLE and b.why_not is None for b in blocks(page))


STORES: Final = (
    *("store", "newer-store", "store-of-tuesday"),
    *("main-store", "branch-store", "last-week", "this-week"),
)
"""The names that pages use for stores; all are copies of one store."""


def archive_and_store(folder: Path) -> Path:
    """Create `traces` and its `store`, which most pages use, once."""
    shutil.copytree(ROOT / "sample_traces", folder / "traces", ignore=_programs)
    mt.score([folder / "traces"], out=folder / "store", jobs=1)
    return folder


def _programs(_: str, names: list[str]) -> list[str]:
    return [name for name in names if ".jsonl" not in name]


def world(folder: Path, page: Path, furniture: Path) -> Path:
    """The folder in which a page's blocks run.

    Beside it: a home with a client's configuration and logs, and programs. `npx` and `uvx` start a
    small server of ours instead of fetching one. Unless the page is `BARE`, there are also an
    archive and the stores that it names.
    """
    here = folder / "here"
    here.mkdir()
    shutil.copytree(ROOT / "sample_traces", here / "sample_traces")
    home = folder / "home"
    (home / ".cursor").mkdir(parents=True)
    (home / ".cursor" / "mcp.json").write_text(
        '{"mcpServers": {"files": {"command": "npx", "args": ["-y", "some-server"]}}}\n'
    )
    time = events(ROOT / "sample_traces" / "time.jsonl")
    logs = home / "Library" / "Logs" / "Claude"
    logs.mkdir(parents=True)
    (logs / "mcp-server-time.log").write_text(styles.claude_desktop(time))
    (folder / "programs").mkdir()
    server = Path(__file__).parents[1] / "servers" / "files_server.py"
    for name, command in {
        "mcptally": '-m mcptally "$@"',
        "python": '"$@"',
        "npx": str(server),
        "uvx": str(server),
    }.items():
        program = folder / "programs" / name
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {command}\n")
        program.chmod(0o755)
    if page.relative_to(ROOT).as_posix() not in BARE:
        shutil.copytree(furniture / "traces", here / "traces")
        text = page.read_text(encoding="utf-8")
        for name in STORES:
            if name in text:
                shutil.copytree(furniture / "store", here / name)
        (here / "colleague.log").write_text(styles.vscode(time))
        (here / "wire.jsonl").write_text(styles.enveloped(time))
    return folder


START_PROGRAMS: Final = frozenset({"record", "wrap", "mock", "serve", "explore", "--engine"})
"""Words in commands that start other programs: these commands run in their own process."""


def commands_alone(block: Block, code: str) -> list[list[str]]:
    """Return the arguments of each mcptally command if the block has only such commands.

    To run them in this process takes half the time.
    """
    if block.kind == "sql":
        return [["query", "store", code]]
    found = list(invocations(code))
    unquoted = re.sub(r"'[^']*'|\"[^\"$`]*\"", "", _without_comments(code))
    lines = [line for line in unquoted.splitlines() if line.strip()]
    alone = (
        block.kind == "sh"
        and len(lines) == len(found)
        and all(line.startswith("mcptally ") for line in lines)
        and not re.search(r"[|&;<>$*?`{}()\[\]]", unquoted)
        and START_PROGRAMS.isdisjoint(word for words in found for word in words)
    )
    return found if alone else []


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block of shell, Python or SQL in `folder`, as a reader would."""
    environment = os.environ | {
        "HOME": str(folder / "home"),
        "PATH": f"{folder / 'programs'}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
    }
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        environment.pop(name, None)
    code = block.code.replace("CALL_ID", _failed_call(folder)) if "CALL_ID" in block.code else ""
    code = code or block.code
    if alone := commands_alone(block, code):
        return _run_here(alone, folder / "here", environment)
    if block.kind == "python" and "distributed" not in code:  # which starts other processes
        return _execute_here(code, folder / "here", environment)
    command = {
        "sh": ["bash", "-euo", "pipefail", "-c", code],
        "python": [sys.executable, "-c", code],
    }[block.kind]
    return subprocess.run(
        command,
        cwd=folder / "here",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@contextlib.contextmanager
def _in(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Change to a folder, with these environment variables and without input."""
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        contextlib.chdir(folder),
        Path(os.devnull).open() as nothing,
        mock.patch.object(sys, "stdin", nothing),
    ):
        yield


def _run_here(
    commands: list[list[str]], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run mcptally commands in this process until one fails, and return their output."""
    out, err, code = "", "", 0
    with _in(folder, environment):
        for words in commands:
            done = run_command(*map(os.path.expanduser, words))
            out, err, code = out + done.stdout, err + done.stderr, done.returncode
            if code:
                break
    return subprocess.CompletedProcess(["mcptally"], code, out, err)


def _execute_here(
    code: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Execute Python in this process and return its output."""
    out = io.StringIO()
    with _in(folder, environment), contextlib.redirect_stdout(out):
        exec(code, {"__name__": "__main__"})  # noqa: S102  (the code is ours)
    return subprocess.CompletedProcess(["python"], 0, out.getvalue(), "")


def _failed_call(folder: Path) -> str:
    """Return the id of a failed call, as a reader would take it from a table."""
    failed = "SELECT call_id FROM calls WHERE verdict IS NOT NULL AND tool IS NOT NULL LIMIT 1"
    ((call,),) = mt.open_store(folder / "here" / "store").sql(failed).fetchall()
    return str(call)


_CACHE: Final = re.compile(r"(?<=\.cache/mcptally/)[0-9a-f]{12}")
"""The digest of the paths given to `mcptally PATH`, which differs between folders."""

_RECORDED: Final = ("/srv/demo/" + "work/", "/srv/demo/")
"""The folder in which the sample traces were recorded, and a shorter name for it on pages."""


def follow(page: Path, folder: Path) -> Iterator[tuple[Block, str]]:
    """Run a page's blocks in a world: yield each output that it shows, and the actual output.

    Raises:
        AssertionError: a block ended otherwise than the page promises.
    """
    said = ""
    for block in blocks(page):
        if block.file is not None:
            path = folder / "here" / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
        elif block.mark == "output":
            yield block, "".join(f"{line.rstrip()}\n" for line in said.splitlines())
        elif block.kind in RUNNABLE and block.why_not is None:
            done = run(block, folder)
            said = _CACHE.sub("7b170564551a", done.stdout).replace(*_RECORDED)
            where = f"{page.relative_to(ROOT)}:{block.line}"
            told = f"{where} exited with {done.returncode}\n{block.code}\n{said}{done.stderr}"
            assert done.returncode == block.exits, told


def _without_comments(code: str) -> str:
    """Return a shell block with one command per line, without comments."""
    return re.sub(r"\\\n\s*", " ", re.sub(r"(?:^|\s{2,})# .*", "", code, flags=re.MULTILINE))


def invocations(code: str) -> Iterator[list[str]]:
    """Return the arguments of every mcptally command in a shell block."""
    lexer = shlex.shlex(_without_comments(code), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if set(word) <= set(";|&\n"):
            for at, first in enumerate(words):
                if first == "mcptally" or first.endswith("/mcptally"):
                    yield words[at + 1 :]
                    break
            words = []
        else:
            words.append(word)


def rewrite(page: Path, furniture: Path) -> bool:
    """Put the blocks' output into the page, and return whether the page changed."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = world(Path(name), page, furniture)
        shown = list(follow(page, folder))
    fresh = text
    for block, said in reversed(shown):
        begin, end = block.span
        fresh = f"{fresh[:begin]}{said}{fresh[end:]}"
    page.write_text(fresh, encoding="utf-8")
    return fresh != text


def main() -> int:
    """Write outputs anew in every page that shows some."""
    with tempfile.TemporaryDirectory() as name:
        furniture = archive_and_store(Path(name))
        for page in PAGES:
            if any(block.mark == "output" for block in blocks(page)):
                print(page.relative_to(ROOT), "changed" if rewrite(page, furniture) else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
