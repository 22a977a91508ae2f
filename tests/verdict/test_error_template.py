"""Templates of error texts: the message without its wrappers and varying parts."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.verdict.error_template import MAX_TEMPLATE, templates

DUPLICATE = r'{"error": {"code": 409, "message": "duplicate key value violates \"users_pkey\""}}'
FOREIGN = r'{"errors": [{"message": "row violates foreign key \"users_fk\""}], "data": null}'
TRACEBACK = """Traceback (most recent call last):
  File "app.py", line 31, in run
    query(text)
"""
MESSAGES = {
    DUPLICATE: "duplicate key value violates <text>",
    FOREIGN: "row violates foreign key <text>",
    '{\n  "success": false,\n  "error": "no such table: t"\n}': "no such table: t",
    r'{"error": "{\"message\": \"disk \\\"a\\\" is full\"}"}': "disk <text> is full",
    '{"detail": [{"loc": ["body", "name"], "msg": "field required"}]}': "field required",
    '{"title": "Not Found", "status": 404, "detail": "No user 7"}': "No user <n>",
    '{"title": "Not Found", "status": 404}': "Not Found",
    '{"message": "\\u8868\\u4e0d\\u5b58\\u5728"}': "表不存在",
    '{"message": "cut off after this text", "data": [1, 2': "cut off after this text",
    "Error code: 404 - {'error': {'message': 'The model `x` is unknown'}}": (
        "Error code: <n>: The model <text> is unknown"
    ),
    'failed with status 429 (429: {"error": "rate limited", "retry_after": 3})': (
        "failed with status <n> (<n>: rate limited"
    ),
    'Invalid input: [{"code": "invalid_type", "path": ["owner"], "message": "Required"}]': (
        "Invalid input: Required at owner"
    ),
    TRACEBACK + "sqlite3.OperationalError: no such table: t1\n": (
        "sqlite3.OperationalError: no such table: t1"
    ),
    TRACEBACK + "KeyError: 'a'\n\nDuring handling of the above exception, another exception "
    "occurred:\n\n" + TRACEBACK + "pkg.NotFound: nothing here\nThe server stopped.": (
        "pkg.NotFound: nothing here"
    ),
    "╭─ Traceback (most recent call last) ─╮\n│ /a/b.py:3 in f │\n╰───╯\nValueError: bad": (
        "ValueError: bad"
    ),
    'Traceback (most recent call last): File "a.py", line 1 SyntaxError: invalid syntax': (
        "SyntaxError: invalid syntax"
    ),
    "Error executing tool add: 2 validation errors for addArguments\na\n  Field required "
    "[type=missing, input_value={}, input_type=dict]\nb\n  Field required [type=missing]": (
        "validation error for addArguments: Field required at a"
    ),
    "Error: spawn failed:\nENOENT": "spawn failed: ENOENT",
    "Command failed: cat notes\ncat: no such file\n": "cat: no such file",
    "Cmd('git') failed\n  cmdline: git x\n  stderr: 'error: unknown command'": (
        "Cmd(<text>) failed: error: unknown command"
    ),
    "# Task Result\n\n## System Error\n\nThe task could not be found.": (
        "The task could not be found."
    ),
    "MCP error -32603: Error executing tool x: Error: boom": "boom",
    "❌ Error: no route": "no route",
    "'repo_path'": "repo_path",
    # Case is ignored, so a long s is an s.
    '{"me\N{LATIN SMALL LETTER LONG S}\N{LATIN SMALL LETTER LONG S}age": "no disk"}': "no disk",
    # What is only a wrapper stays: it is all that the text says.
    "Error executing tool add": "Error executing tool add",
    "Error: ": "Error:",
    "{": "{",
    # An uninformative first line.
    "⚙️ Error\n\n❌ Missing defaults: Provide x\nSet with: y": "Missing defaults: Provide x",
    "Stdout:\n\nStderr:\nrm: no such file": "rm: no such file",
    "Build result:\nError: no files": "Build result: Error: no files",
    "Build failed\n\nTS2304: no name": "Build failed: TS2304: no name",
    "Command failed with exit code 2\nls: no /x": (
        "Command failed with exit code <n>: ls: no <path>"
    ),
    "Command failed with exit code 2": "Command failed with exit code <n>",
    '{\n  "emails": [],\n  "asked": 1\n}': 'emails": [],',
    '{"a": 1}': "{<text>: <n>}",
}
MASKED = {
    "connect ECONNREFUSED 127.0.0.1:5432": "connect ECONNREFUSED <n>:<n>",
    "timed out after 30000ms, not 2.5 s": "timed out after <n>, not <n> s",
    "open /nope: denied, src/a/b.py too": "open <path>: denied, <path> too",
    "GET https://a.example/x?y=1 failed": "GET <url> failed",
    "at 2026-11-22T18:00:01.123Z": "at <time>",
    "req_011CSHoEeqs5C35K2UUqR7Fy is gone": "<id> is gone",
    "I can't find 'a b' or \"c\"; don't ask": "I can't find <text>, …; don't ask",
    "one of ['a', 'b', 'c']": "one of [<text>, …]",
    # Error codes distinguish groups.
    "E11000 duplicate key": "E11000 duplicate key",
    "SQLSTATE[42P01] and TS2322": "SQLSTATE[42P01] and TS2322",
}


@pytest.mark.parametrize(("text", "template"), (MESSAGES | MASKED).items())
def test_a_template_is_what_the_error_says(text, template):
    assert templates(pl.Series([text])).to_list() == [template]


def test_no_text_has_no_template():
    found = templates(pl.Series(["", " \n", None, "x"], dtype=pl.String))
    assert found.to_list() == [None, None, None, "x"]
    assert templates(pl.Series([], dtype=pl.String)).to_list() == []


PIECES = st.sampled_from(
    [
        *MESSAGES,
        *MASKED,
        *"'\"`{}[]()<>:,/\\-.\n \u2028",
        "Error: ",
        "12",
        "ab1c2d3",
        "\\'",
        "é",
        "…",
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=12).map("".join)


@given(st.lists(TEXTS, max_size=6))
def test_a_template_is_bounded_never_empty_and_its_own_template(texts):
    found = templates(pl.Series(texts, dtype=pl.String))
    for text, template in zip(texts, found, strict=True):
        if template is None:
            assert not text.strip()
        else:
            assert 0 < len(template) <= MAX_TEMPLATE
    assert templates(found).to_list() == found.to_list()
