"""`mcptally PATH`: one screen of findings, kept in a cache."""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

import mcptally as mt
from mcptally.errors import UsageError
from mcptally.output.overview import cache, overview
from mcptally.output.overview.screen import screen, skipped
from tests import corpus
from tests.commands import run
from tests.importers import styles
from tests.importers.imported_logs import events
from tests.output.html.parsed_page import parse
from tests.review import archives
from tests.transcripts import call, event, exchange, opened, text, write

NAMES = ("time.jsonl", "sqlite.jsonl.zst")


def settle(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Use the caches of a home folder, and treat recent files as stable: ctimes cannot be set."""
    home.mkdir()
    patch.setenv("HOME", str(home))
    patch.delenv("XDG_CACHE_HOME", raising=False)
    patch.setattr("mcptally.store.source_files.TIMESTAMP_MARGIN_NS", -(10**9))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    settle(monkeypatch, tmp_path / "home")
    return tmp_path / "home"


def aged(folder: Path) -> Path:
    """Return the folder with all times a minute back, so that a later change alters a time."""
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - 60
        os.utime(path, (then, then))
    return folder


def session(path: Path, *replies: bool, error: str = "Traceback: boom") -> Path:
    """Write a recording of calls to the tool `read`; a call that is False failed."""
    messages = []
    for number, worked in enumerate(replies):
        said = text(number, "contents") if worked else text(number, error, isError=True)
        messages += [call(number, "read", path="a"), said]
    return write(path, [opened(), *exchange(*messages)])


TOKEN = "ghp_" + "a1B2c3D4e5" * 4


class Summary(NamedTuple):
    """Recordings, and what `mcptally PATH` printed about them."""

    home: Path
    path: Path
    printed: str


def summarized(folder: Path, path: Path) -> Summary:
    """Return what is printed about `path`, with the cache in `folder`, at 80 columns."""
    aged(path.parent)
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, folder / "home")
        patch.setenv("COLUMNS", "80")
        done = run(path)
    assert done.returncode == 0, done.stderr
    return Summary(folder / "home", path, done.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Summary:
    """A recording with hostile text."""
    folder = tmp_path_factory.mktemp("summary")
    path = session(folder / "a.jsonl", *[False] * 12, error=f"Traceback\x1b[2J\n{TOKEN}")
    return summarized(folder, path)


@pytest.fixture
def summary(made, home, monkeypatch) -> Summary:  # noqa: ARG001  (`home` is replaced)
    """The recording of `made`, with its home folder."""
    monkeypatch.setenv("HOME", str(made.home))
    return made


@pytest.fixture(scope="module")
def screened(tmp_path_factory) -> Summary:
    """Two sample recordings, and a file that is not a recording."""
    folder = tmp_path_factory.mktemp("screen")
    (folder / "traces").mkdir()
    for name in NAMES:
        shutil.copy(corpus.SAMPLES / name, folder / "traces")
    (folder / "traces" / "README.md").write_text("no recording")
    return summarized(folder, folder / "traces")


@pytest.fixture
def samples(screened, home, monkeypatch) -> Summary:  # noqa: ARG001  (`home` is replaced)
    """The files of `screened`, with their home folder."""
    monkeypatch.setenv("HOME", str(screened.home))
    return screened


@pytest.mark.slow
def test_one_screen_says_what_was_read_what_is_wrong_and_what_to_do_next(samples):
    home, traces, printed = samples
    lines = printed.splitlines()
    assert len(lines) <= 36
    assert all(len(line) <= 80 or line == f"{traces}:" for line in lines[:-4])
    first, second = (
        next(number for number, line in enumerate(lines) if line.startswith(f"{n}. "))
        for n in (1, 2)
    )
    head = " ".join(line.strip() for line in lines[:first])
    assert f"{traces}: 2 transcripts" in head
    assert re.search(r" [\d.]+% of \d+ calls got what they asked for ", head)
    said = " ".join(line.strip() for line in lines[first:second])
    assert re.search(
        r"(fault|their cause): \w+ \(\d+% sure\); already in the first session; [\d.]+%", said
    )
    [(call_id, message)] = re.findall(
        r"(?m)^   ([0-9a-f]{16}) (.+)", "\n".join(lines[first:second])
    )
    assert message
    assert lines[-4].startswith("report: ~/.cache/mcptally/")
    page = Path(lines[-4].split()[1].replace("~", str(home)))
    assert page.read_text().startswith("<!doctype html>")
    for line in lines[-3:-1]:  # `explore` runs until it is stopped
        words = shlex.split(line.replace("next:", "").replace("~", str(home)))
        assert words[0] == "mcptally"
        pasted = run(*words[1:])
        assert pasted.returncode == 0, pasted.stderr
        assert call_id in pasted.stdout


@pytest.mark.slow
def test_the_page_has_a_whole_call_of_each_finding_and_commands_for_the_rest(summary):
    found = overview([summary.path])
    page = parse(found.page)
    [finding] = found.answer["findings"]
    ids = {about["id"] for _, about in page.elements if "id" in about}
    links = {str(about["href"]) for about in page.named("a")}
    assert f"call-{finding['call_id']}" in ids
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= ids
    assert not page.named("table")
    assert f"mcptally report {found.store} -o report.html" in page.commands
    assert finding["lines"][0] in " ".join(page.plain_text().split())


@pytest.mark.slow
def test_unchanged_inputs_are_answered_from_the_cache_without_heavy_imports(summary):
    program = (
        "import sys; from mcptally.store import source_files; "
        "source_files.TIMESTAMP_MARGIN_NS = -10**9; from mcptally.cli import cli; "
        f"cli([{str(summary.path)!r}], standalone_mode=False); "
        "print([m for m in ('polars', 'pyarrow', 'duckdb', 'rich', 'mcp') if m in sys.modules])"
    )
    again = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert again.stdout.splitlines()[-1] == "[]", again.stderr
    assert summary.printed in again.stdout


@pytest.mark.slow
def test_what_changed_is_read_again(tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    session(traces / NAMES[0], True, True)
    session(traces / "other.jsonl", True)
    last = overview([traces])
    state = cache.read(last.folder)
    assert cache.is_current(last.folder, state, {})
    last.page.write_text("changed")
    assert not cache.is_current(last.folder, state, {})
    shutil.rmtree(last.store)
    assert not cache.is_current(last.folder, state, {})
    (last.folder / "overview.json").write_text("{")
    assert cache.read(last.folder) == {}
    session(traces / "more.jsonl", True, False)
    again = overview([traces])
    assert again.folder == last.folder
    assert again.page.read_text() != "changed"
    [(stored,)] = mt.open_store(again.store).sql("SELECT count(*) FROM calls").fetchall()
    assert (again.answer["calls"], again.answer["transcripts"]) == (stored, 3)


@pytest.mark.slow
def test_answers_of_a_review_are_applied_and_are_no_skipped_file(tmp_path):
    traces = archives.archive(tmp_path / "traces")
    first = overview([traces])
    review = archives.session(mt.open_store(first.store))
    review.answer(review.next_items()[0], "network", group=True)
    again = overview([traces])
    assert again.answer["skipped"] == []
    rules = mt.open_store(again.store).sql("SELECT DISTINCT rule FROM calls").fetchall()
    assert ("review",) in rules


@pytest.mark.slow
def test_logs_and_transcripts_can_be_mixed(tmp_path):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    time = events(corpus.SAMPLES / "time.jsonl")
    (mixed / "mcp-server-time.log").write_text(styles.claude_desktop(time))
    session(mixed / "read.jsonl", True, False)
    (mixed / "other.jsonl").write_text('{"some": "thing"}\n')
    before = {path: path.read_bytes() for path in mixed.rglob("*")}
    found = overview([mixed])
    assert (found.answer["transcripts"], found.answer["logs"]) == (1, 1)
    assert [Path(path).name for path, _ in found.answer["skipped"]] == ["other.jsonl"]
    assert found.answer["calls"] > 2
    assert found.answer["servers"] == 2
    assert {path: path.read_bytes() for path in mixed.rglob("*")} == before
    # Without the log, its transcripts are removed.
    (mixed / "mcp-server-time.log").unlink()
    assert overview([mixed]).answer["calls"] == 2


@pytest.mark.slow
def test_skipped_files_are_named_with_the_reason_also_from_the_cache(tmp_path):
    session(tmp_path / "a.jsonl", True)
    for name, content in (
        ("x.jsonl", b"hello\n"),
        ("empty.log", b""),
        ("damaged.jsonl.zst", b"\x28\xb5\x2f\xfd" + b"damage" * 10),
        ("README.md", b"text"),
    ):
        (tmp_path / name).write_bytes(content)
    aged(tmp_path)
    first = overview([tmp_path])
    second = "skipped: 2 files (--skipped says why): empty.log, x.jsonl"
    said = screen(["."], first.answer, first.store, first.page).splitlines()
    assert said[1].startswith("not read: ")
    assert second in said
    lines = skipped(first.answer).splitlines()
    assert "damaged.jsonl.zst: line 1: reading stopped: zstd" in said[2]
    assert lines[0].endswith("empty.log: unknown format: the file is empty")
    assert lines[1].endswith(
        "x.jsonl: unknown format: looked at 1 line: none matches a known format"
    )
    assert "1 file not opened because of the name: README.md" in lines
    assert "  claude-code: members sessionId and cwd" in lines
    # Another skipped file is named, though nothing has to be computed again.
    (tmp_path / "new\n\x1b[2J.log").write_text("")
    written = first.page.stat().st_mtime_ns
    again = overview([tmp_path])
    assert again.page.stat().st_mtime_ns == written
    assert len(again.answer["skipped"]) == 3
    assert "\x1b" not in skipped(again.answer) + screen(
        ["."], again.answer, again.store, again.page
    )


ANSWER = {
    **dict.fromkeys(("calls", "tools", "servers", "sessions", "bytes"), 1),
    **dict.fromkeys(("transcripts", "logs", "unused_lines", "ok"), 0),
    "unread": [],
    "first": "2023-11-14 22:13",
    "last": "2026-11-21 22:53",
    "headline": "",
    "reviewed": None,
    "rest": {"unfinished": 0, "outcome unknown": 0},
    "skipped": [],
    "findings": [],
}


def said_about(**fields):
    """Return the lines of the screen for an answer with these fields."""
    return screen(["x"], ANSWER | fields, Path("store"), Path("page")).splitlines()


def test_a_finding_is_wrapped_between_words_and_keeps_names_whole():
    long = "a_rather_long_tool_name_number_103_of_a_server_that_has_many_such_names_everywhere_x"
    lines = [
        f"many: {long}: tool failures, 6 of 18 calls",
        "fault: tool (99% sure)",
        "1f Boom " * 20,
    ]
    text = said_about(
        rest={"caller": 15_254, "upstream": 2_296, "tool": 1_447, "unknown": 321}
        | {"unfinished": 432, "outcome unknown": 0},
        findings=[{"lines": lines, "call_id": "1f"}],
    )
    assert text[0].endswith("2023-11-14 to 2026-11-21")
    start = text.index("1. many:")
    assert text[start + 1 : start + 4] == [
        f"   {long}:",
        "   tool failures, 6 of 18 calls",
        "   fault: tool (99% sure)",
    ]
    assert text[start + 4].startswith("   1f Boom")
    assert text[start + 5].startswith("   Boom 1f")
    assert text[start + 5].endswith("\N{HORIZONTAL ELLIPSIS}")
    assert text[start + 6].startswith("report:"), "the example takes two lines"
    assert "fault: caller 15,254, upstream 2,296, tool 1,447, unknown 321; unfinished: 432" in text


def test_a_reviewed_rate_stands_beside_that_of_the_verdicts():
    assert "reviewed: 29.8%" in said_about(reviewed="reviewed: 29.8%")


def test_no_fault_is_cut_off():
    rest = dict.fromkeys(("caller", "network", "tool", "unknown", "account", "upstream"), 15_693)
    text = said_about(rest=rest | {"unfinished": 475, "outcome unknown": 0})
    start = next(n for n, line in enumerate(text) if line.startswith("fault: "))
    assert text[start].endswith("unknown 15,693,")
    assert text[start + 1] == "  account 15,693, upstream 15,693"
    assert text[start + 2] == "unfinished: 475"


def test_no_problem_was_found_only_if_nothing_failed():
    assert "No problem was found." in said_about(
        calls=3, ok=2, rest={"unfinished": 1, "outcome unknown": 0}
    )
    failed = said_about(calls=3, ok=2)
    assert "No tool has a problem: the 1 failed call named none." in failed


def test_the_next_command_is_about_the_first_finding():
    never = {"lines": ["a: never started", "NO_KEY"], "call_id": None}
    call = {"lines": ["b: tool failures", "1f Boom"], "call_id": "1f"}
    assert "next:   mcptally query store servers" in said_about(findings=[never, call])
    assert "next:   mcptally show store 1f" in said_about(findings=[call, never])


@pytest.mark.slow
def test_an_archive_of_servers_that_never_start_says_so_and_when(tmp_path):
    close = {"reason": "not_started", "exit_code": 127, "detail": "cannot start 'x': not found"}
    write(tmp_path / "a.jsonl", [opened("r", server="x"), event("close", 1, "r", **close)])
    done = run(tmp_path / "a.jsonl")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    start = lines.index("0 calls to 0 tools on 1 server in 0 sessions")
    assert lines[start - 1].endswith("2023-11-14 22:13 UTC")
    assert lines[start + 1 : start + 3] == [
        "No tool was called",
        "1. x: never started, 1 of 1 start failed (missing program)",
    ]
    assert "   cannot start 'x': not found" in lines[start + 4 : start + 6]


@pytest.mark.slow
def test_filters_and_limit_choose_what_is_printed_also_as_json(samples):
    traces = samples.path
    first = run(traces, "--server", "time", "--limit", "1", "--json")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert (found["servers"], found["calls"]) == (1, 111)
    [finding] = found["findings"]
    assert finding["servers"] == ["time"]
    assert found["problems"] > 1
    assert finding["rate_low"] < finding["rate"] < finding["rate_high"]
    every = json.loads(run("--limit", "0", "--format", "json", traces).stdout)
    assert every["servers"] == 2
    assert len(every["findings"]) == every["problems"]
    none = run(traces, "--since", "2027-01-01")
    assert "No tool call was recorded" in none.stdout
    wrong = run(traces, "--tool", "nosuch")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no tool is called 'nosuch'" in wrong.stderr


@pytest.mark.slow
def test_the_cache_of_a_folder_that_contains_it_is_no_input(home):
    session(home / "a.jsonl", True)
    (home / "mcp.log").write_text(styles.claude_desktop(events(corpus.SAMPLES / "time.jsonl")))
    assert overview([home]).answer["transcripts"] == 1
    assert overview([home]).answer["transcripts"] == 1


@pytest.mark.slow
def test_a_folder_named_relative_to_the_root_and_absolutely_is_read_once(home, monkeypatch):
    session(home / "a.jsonl", True)
    monkeypatch.chdir("/")
    relative = Path(str(home).removeprefix("/"))
    assert overview([relative, home]).answer["transcripts"] == 1


@pytest.mark.slow
def test_a_second_run_on_the_same_paths_waits_for_the_first_and_uses_its_result(tmp_path):
    traces = tmp_path / "a.jsonl"
    session(traces, True, False)
    aged(tmp_path)
    started, waits = threading.Event(), threading.Event()
    scored, pages = [], []

    def hold(*_: int) -> None:
        started.set()
        waits.wait(60)

    with concurrent.futures.ThreadPoolExecutor(1) as other:
        options = {"progress": hold, "on_answer": lambda found: pages.append(found.page.exists())}
        first = other.submit(overview, [traces], **options)
        started.wait(60)
        second = overview([traces], progress=lambda *_: scored.append(1), on_wait=waits.set)
    assert waits.is_set()
    assert second == first.result()
    assert not scored
    assert pages == [False], "the answer is known before the page is written"
    assert second.page.exists()


def test_a_run_continues_if_the_one_that_it_waited_for_is_killed(tmp_path):
    hold = (
        "import sys, pathlib; from mcptally.output.overview import cache\n"
        "with cache.locked(pathlib.Path(sys.argv[1]), print): print('held', flush=True); input()"
    )
    words = [sys.executable, "-c", hold, str(tmp_path)]
    waited = []
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with cache.locked(tmp_path, lambda: (waited.append(1), first.kill())):
            assert waited == [1]
    assert first.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_nobody_else_can_read_the_cache(summary):
    found = overview([summary.path])
    assert found.folder.parent == summary.home / ".cache" / "mcptally"
    assert stat.S_IMODE(found.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(found.page.stat().st_mode) == 0o600


@pytest.mark.slow
def test_caches_that_were_not_used_for_long_are_removed(tmp_path):
    days = cache.UNUSED_DAYS * 24 * 3600
    named = [cache.folder_of(cache.root(), [tmp_path / name]) for name in ("old", "recent")]
    folders = [*named, cache.root() / "foreign"]
    for folder, age in zip(folders, (days + 60, days - 60, 2 * days), strict=True):
        cache.create(cache.root(), folder)
        cache.write(folder, {})
        for path in (folder / "overview.json", folder):
            then = path.stat().st_mtime - age
            os.utime(path, (then, then))
    session(tmp_path / "a1.jsonl", True)
    found = overview([tmp_path / "a*.jsonl"])
    assert found.answer["transcripts"] == 1, "a pattern stands for its matches"
    assert [folder.exists() for folder in folders] == [False, True, True]


def test_a_folder_that_is_a_link_is_not_used(tmp_path):
    session(tmp_path / "a.jsonl", True)
    folder = cache.folder_of(cache.root(), [tmp_path / "a.jsonl"])
    folder.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link"):
        overview([tmp_path / "a.jsonl"])


@pytest.mark.slow
def test_recorded_text_reaches_the_screen_masked_and_on_one_line(summary):
    assert "12 of 12 calls" in summary.printed
    assert TOKEN not in summary.printed
    assert "\x1b" not in summary.printed
    state = overview([summary.path]).folder / "overview.json"
    assert TOKEN not in json.dumps(json.loads(state.read_text()))
