"""`mcptally review` gets answers from a terminal, stdin or a program, and prints rates."""

import contextlib
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import mcptally as mt
from mcptally.evaluation import evaluate
from mcptally.review import answers
from tests.commands import run
from tests.review.archives import OK, full, recording, scored, session

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviewed")
    scored(
        folder,
        recording("b", [*[OK] * 60, *map(full, range(20)), ("At 3: token ghp_" + 36 * "a", True)]),
    )
    return folder


@pytest.fixture
def store(kept):
    yield kept / "store"
    (kept / "traces" / "reviews.jsonl").unlink(missing_ok=True)


@pytest.fixture
def typed(monkeypatch):
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def file_of(store):
    return answers.read(store.parent / "traces" / "reviews.jsonl")


def test_lines_of_stdin_answer_one_item_after_the_other(store, typed):
    typed("At the vendor\n\nc\n")
    done = run("review", store, "--as", "ann")
    assert done.returncode == 0
    assert [(row.answer, row.scope, row.why, row.who) for row in file_of(store).answers] == [
        ("tool", "group", "the vendor", "ann"),
        ("caller", "call", "", "ann"),
    ]
    assert "25 calls of this group, 89 % of the failed calls" in done.stdout
    assert "our verdict" in done.stdout
    assert "answers decide 93 % of the failed calls" in done.stderr


def test_ctrl_c_while_a_reason_is_typed_stops_at_once(store):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mcptally", "review", str(store)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while b"why: " not in said:
        if not select.select([ours], [], [], 0.1)[0]:
            os.write(ours, b"w")  # keys that are pressed before they are read are discarded
        else:
            said += os.read(ours, 65536)
    for _ in range(20):  # a signal that arrives just before the read begins does not end it
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
            break
    assert process.returncode == 130
    os.close(ours)


def test_a_line_that_is_no_answer_stops_before_later_lines_answer_other_calls(store, typed):
    typed("c\nyes\nc\n")
    done = run("review", store)
    assert done.returncode == 2
    assert "stdin:2: 'yes' is not an answer" in done.stderr
    assert len(file_of(store).answers) == 1


def test_a_long_text_is_cut_and_shown_whole_on_request(tmp_path, typed):
    long = f"Quota of the printing service used up: 1 of 2 pages: {' '.join(map(str, range(900)))}"
    opened = scored(tmp_path, recording("b", [(long, True)] * 9, server="other"))
    typed("v\nq\n")
    cut, whole = run("review", opened.path).stdout.split("(cut; v shows all)")
    assert " 899" not in cut
    assert " 899" in whole


def test_undo_and_skip_and_quit(store, typed):
    typed("c\nz\ns\nu\nq\nc\n")
    assert run("review", store).returncode == 0
    current = file_of(store).current()
    assert [row.answer for row in current.values()] == ["upstream"]


def test_secrets_are_masked_on_the_screen_and_before_programs_see_them(store, typed, tmp_path):
    typed("s\ns\ns\n")
    assert "ghp_aaaa" not in run("review", store).stdout
    script = program(tmp_path, "seen.write(text); print('tool')")
    assert run("review", store, "--with", script, "--items", 3).returncode == 0
    assert "ghp_aaaa" not in (tmp_path / "seen").read_text()


def program(folder: Path, body: str) -> str:
    path = folder / "reader.py"
    path.write_text(
        "import json, sys\n"
        "text = sys.stdin.read(); item = json.loads(text)\n"
        f"seen = open({str(folder / 'seen')!r}, 'a')\n{body}\n"
    )
    return f"{sys.executable} {path}"


def test_a_program_is_a_reviewer_whose_answers_wait_for_agreement(store, tmp_path):
    script = program(tmp_path, "print(json.dumps({'answer': 'tool', 'why': item['tool']}))")
    done = run("review", store, "--with", script, "--items", 2, "--as", "reader")
    assert done.returncode == 0
    rows = file_of(store).answers
    assert {(row.who, row.by, row.answer, row.why) for row in rows} == {
        ("reader", "program", "tool", "echo")
    }
    status = run("review", store, "--status").stdout
    assert "the answers of reader do not count yet: 0 calls in common" in status
    assert not session(mt.open_store(store)).settled.calls


@pytest.mark.parametrize(
    ("body", "said", "code"),
    [
        ("print('maybe')", "printed 'maybe'; expected one of caller", 1),
        ("sys.exit('out of tokens')", "ended with exit code 1: out of tokens", 1),
        (None, "cannot be started", 2),
    ],
)
def test_a_program_that_gives_no_answer_stops_the_review(store, tmp_path, body, said, code):
    done = run("review", store, "--with", program(tmp_path, body) if body else "/nowhere/reader")
    assert (done.returncode, said in done.stderr) == (code, True)
    assert not file_of(store).answers


def test_a_finished_sample_gives_rates_and_an_unfinished_one_none(store, typed):
    typed("q\n")
    run("review", store, "--sample", 20)
    (sample,) = file_of(store).samples
    key = {"ok": "o", "other_error": "t", "tool_failure": "t"}
    typed(key[sample.drawn[0].stratum] + "\n")
    assert "1 of 20 answered; rates follow then" in run("review", store, "--sample", 20).stderr
    opened = mt.open_store(store)
    rest = [key[each.stratum] for each in sample.drawn[1:]]
    opened.answer(opened.review(20, sample=True).with_columns(answer=pl.Series(rest)))
    done = run("review", store, "--sample", 20)
    assert len(file_of(store).samples) == 1
    assert "failure_rate: 29.8 % of 94 recorded calls (" in done.stderr
    assert "of the service" in done.stderr
    said = r"failed because of the tool, reviewed: 29\.8% \(.*, 20 answers\); by the verdicts: \d"
    assert re.search(said, run("query", store, "tool_scores").stderr)
    assert re.search(said, mt.report(store))
    assert "reviewed" not in run("query", store, "tool_scores", "--since", "2020-01-01").stderr


def test_two_reviewers_see_their_agreement_and_conflicts(store):
    for who, second in (("ann", "upstream"), ("bob", "tool")):
        review = session(mt.open_store(store), who=who)
        for item, answer in zip(
            review.next_items(2, second=who == "bob"), ("caller", second), strict=True
        ):
            review.answer(item, answer)
    status = run("review", store, "--status").stdout
    assert "agreement of ann and bob: 50 % of 2 calls, kappa" in status
    assert "conflict: demo echo" in status


def test_a_second_reviewer_does_not_see_what_the_first_one_answered(store, blind_store, typed):
    typed("q\n")
    first = run("review", store).stdout
    typed("q\n")
    second = run("review", blind_store, "--as", "bob", "--second").stdout
    assert "our verdict" in first
    assert "not shown: an answer was applied" not in first
    assert second.count("Quota") == first.count("Quota")
    assert "our verdict   not shown: an answer was applied" in second
    assert not any(told in second for told in ("fault:", "certain", "printers", "zoe"))


def test_exported_labels_have_no_arguments_and_can_be_evaluated(store, tmp_path):
    review = session(mt.open_store(store))
    for item, answer in zip(review.next_items(2), ("tool", "caller"), strict=True):
        review.answer(item, answer)
    out = tmp_path / "labels.jsonl"
    assert run("review", store, "--export", out).returncode == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["verdict"] for row in rows} == {"tool_failure", "business"}
    assert not {"args", "arguments", "recording", "who", "why"} & {
        name for row in rows for name in row
    }
    assert evaluate(out).verdict.n == 2


def test_a_rule_is_proposed_tried_and_valid(store, typed, tmp_path):
    typed("u the shop is closed\nc\n")
    run("review", store)
    text = run("review", store, "--rule").stdout
    assert "25 calls would change to infrastructure" in text
    rules = tmp_path / "rules.toml"
    rules.write_text(text)
    none = tmp_path / "none.jsonl"
    none.touch()
    mt.score(store.parent / "traces", out=tmp_path / "store", rules=rules, reviews=none)
    found = mt.open_store(tmp_path / "store").sql(
        "SELECT count(*) FROM calls WHERE verdict = 'infrastructure' AND rule LIKE 'verdict.ours.%'"
    )
    assert found.fetchall() == [(25,)]


def test_a_notebook_fills_a_table(store, tmp_path):
    opened = mt.open_store(store)
    table = opened.review(2, who="ann")
    assert table.height == 2
    assert opened.answer(table.with_columns(answer=table["answer"].fill_null("u")), who="ann") == 2
    assert opened.review(9, who="ann").height == 1
    drawn = opened.review(30, sample=True, reviews=tmp_path / "other.jsonl")
    assert drawn.height == 30


def test_an_archive_that_is_gone_needs_a_named_file(store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    manifest = tmp_path / "store" / "store.json"
    manifest.write_text(manifest.read_text().replace(str(store.parent / "traces"), "/gone"))
    done = run("review", tmp_path / "store")
    assert (done.returncode, "--reviews FILE" in done.stderr) == (2, True)
