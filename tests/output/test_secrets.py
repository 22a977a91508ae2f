"""No command writes secrets from an archive that was recorded without redaction."""

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import polars as pl
import pyarrow as pa
import pytest
from mcp.client.client import Client

import mcptally as mt
from mcptally.analytics.store import open_store
from mcptally.analytics.views import question_titles
from mcptally.output.export import export
from mcptally.output.formats import EXPORTS
from mcptally.output.mcp_server import server
from mcptally.redaction import display
from mcptally.store.parts import write_part
from mcptally.store.work_folder import Provenance, create_work_folder, publish
from mcptally.tables.all_tables import TABLES
from tests.commands import run_bytes
from tests.transcripts import (
    call,
    error,
    event,
    exchange,
    opened,
    request,
    result,
    text,
    write,
)

SECRETS = {
    "github": "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8xC0uR5tY1",
    "aws": "AKIA" + "IOSFODNN7QRSTUVW",
    "anthropic": "sk-ant-" + "api03-Xy7Zq9Lm2Np4Rs6Tv8Wx0Ab1Cd3Ef5Gh",
    "slack": "xoxb-" + "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0."
    "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "bearer": "Bearer " + "q8W3e5R7t9Y1u2I4o6P8a0S2d4F6",
    "password": "password=" + "Tr0ub4dor&Horse7",
    "url": "https://admin:" + "s3cr3tPassw0rd" + "@db.example.com/x",
}
"""Texts with a secret."""
LEAKS = (
    *(SECRETS[name] for name in ("github", "aws", "anthropic", "slack", "jwt")),
    *("q8W3e5R7t9Y1u2I4o6P8a0S2d4F6", "Tr0ub4dor&Horse7", "s3cr3tPassw0rd"),
)
"""The secrets, which must not appear anywhere."""
MEMBER = "correct-horse-battery"
"""A value that is a secret only because of its name: a member's, or a word before it."""

OURS = (
    *("call_id", "attempt_of", "definition", "first_definition", "definition_before", "before"),
    *("file", "dir", "kind", "match", "severity", "about", "end", "transport", "outcome"),
    *("verdict", "reason", "fault", "retryable", "rule", "hidden_rule", "scenario", "closed_by"),
    *("attempt_why", "change", "phase", "task_status", "answered_by", "protocol_source"),
)
"""Columns with mcptally's own words or digests, without recorded text."""
_OURS = ("_state", "_source", "_classification", "_phase", "_kind", "_rule")


def planted(value: str, name: str) -> str:
    """Return a column's value with secrets inserted; JSON text stays JSON text."""
    if value.startswith("{"):
        return json.dumps(json.loads(value) | {"password": MEMBER, "planted": SECRETS})
    if value.startswith("["):
        return json.dumps([*json.loads(value), "--token", MEMBER, *SECRETS.values()])
    try:
        json.loads(value)
    except ValueError:
        words = list(SECRETS.values())
        return f"{value} {words[sum(name.encode()) % len(words)]}"
    return json.dumps(SECRETS["github"])


def recorded_texts(table: type) -> list[str]:
    """Return the names of the columns that contain recorded text."""
    kinds = (pl.String(), pl.List(pl.String()))
    return [
        name
        for name, column in table.columns().items()
        if column.dtype in kinds and name not in OURS and not name.endswith(_OURS)
    ]


def events() -> list[dict]:
    github, aws, jwt = (SECRETS[name] for name in ("github", "aws", "jwt"))
    found = [
        opened(server=f"demo {github}", command=["demo", "--token", MEMBER, SECRETS["url"]]),
        event("stderr", 1, text=f"started with {aws}"),
    ]
    tool = {"name": f"echo {jwt}", "description": aws, "inputSchema": {"type": "object"}}
    messages = [request("l", "tools/list"), result("l", tools=[tool])]
    for number in range(12):
        given = {"password": MEMBER, "note": SECRETS["slack"], "q": [aws]}
        messages.append(call(number, f"echo {jwt}", **given))
        said = f"no: {SECRETS['bearer']} {SECRETS['url']}"
        messages.append(text(number, said, isError=number % 2 == 0))
    messages.append(request(github, "resources/read", uri=SECRETS["url"]))
    messages.append(error(github, -32000, SECRETS["password"], data={"token": MEMBER}))
    return found + exchange(*messages, first=2)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("archive") / "a.jsonl", events())


@pytest.fixture(scope="module")
def store(archive: Path) -> Path:
    """A store with secrets in every column of recorded text."""
    mt.score(archive, out=archive.parent / "scored")
    return rewritten(archive.parent / "scored", archive.parent / "store", with_secrets)


def with_secrets(table: type, frame: pl.DataFrame) -> pl.DataFrame:
    new = []
    for name in recorded_texts(table):
        column = frame.get_column(name)
        if column.dtype == pl.String:
            values = [v if v is None else planted(v, name) for v in column]
        else:
            values = [v if v is None else [*v, *SECRETS.values()] for v in column]
        new.append(pl.Series(name, values, dtype=column.dtype))
    return frame.with_columns(new)


def rewritten(source: Path, folder: Path, change: Callable[[type, pl.DataFrame], Any]) -> Path:
    """A store with the tables of another one, changed."""
    work = create_work_folder(folder)
    for table in TABLES:
        parts = [pl.read_parquet(path) for path in sorted((source / table.name).glob("*.parquet"))]
        frame = table.frame(pl.concat(parts) if parts else pl.DataFrame())
        write_part(work, table, "000000", change(table, frame))
    publish(folder, work, sources=[], rows={}, made=Provenance())
    return folder


def leaks(data: bytes | str) -> set[str]:
    """Return the secrets in an output, including escaped ones."""
    said = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    forms = {said, said.replace(b"&amp;", b"&"), said.replace(b"\\u0026", b"&")}
    return {leak for leak in (*LEAKS, MEMBER) if any(leak.encode() in form for form in forms)}


def printed(*words: object) -> bytes:
    """Return what the command writes to stdout and stderr."""
    done = run_bytes(*words)
    if words[0] in {"export", "report", "compare"} or (
        words[0] == "query" and "::" not in str(words[2])
    ):
        assert done.returncode in {0, 1}, done.stderr
    return done.stdout + done.stderr


def test_the_masks_find_every_planted_secret_in_plain_text_and_in_json():
    for words in SECRETS.values():
        assert leaks(words)
        assert not leaks(display.mask_text(words))
        assert not leaks(display.mask_text(json.dumps({"a": words})))
    assert not leaks(display.mask_text(json.dumps({"password": MEMBER})))
    assert not leaks(display.mask_text(json.dumps(["x", "--token", MEMBER])))


MASKED = (
    "SELECT * FROM calls",
    "SELECT MAP {coalesce(tool, ''): {'a': [arguments]}} AS m, response::BLOB AS b FROM calls",
    "SELECT error_text::INTEGER FROM calls WHERE error_text IS NOT NULL",
)
"""Queries for secrets; the last one fails with secrets in its message."""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "json", "csv", "parquet", "markdown"])
def test_no_answer_of_query_holds_a_secret(store, form):
    for query in MASKED:
        out = printed("query", store, query, "--format", form)
        if out.startswith(b"PAR1"):
            table = pa.parquet.read_table(io.BytesIO(out))
            out = (str(table.schema.names) + str(table.to_pylist())).encode()
        assert leaks(out) == set(), query


@pytest.mark.slow
def test_no_masked_table_or_question_holds_a_secret(store):
    opened, recorded = (open_store(store, masked=masked) for masked in (True, False))
    for name in [*question_titles(), *(table.name for table in TABLES)]:
        assert leaks(str(opened.sql(f'FROM "{name}"').fetchall())) == set(), name
    assert leaks(str(recorded.sql("FROM calls").fetchall())) == {*LEAKS, MEMBER}


@pytest.mark.slow
def test_no_export_holds_a_secret_and_raw_holds_all(store, tmp_path):
    for form in EXPORTS:
        for table in TABLES:
            # Values are masked before a format writes them: one format shows it for all tables.
            if form != "jsonl" and table.name != "calls":
                continue
            where = None if table.name != "calls" else "requested_at IS NOT NULL"
            seen = {}
            for raw in (False, True) if table.name == "calls" else (False,):
                path = tmp_path / f"{form}-{table.name}-{raw}"
                export(store, to=form, out=path, table=table.name, where=where, raw=raw)
                seen[raw] = path.read_bytes()
                if form == "parquet":
                    rows = pa.parquet.read_table(path).to_pylist()
                    seen[raw] += str(rows).encode()
            assert leaks(seen[False]) == set(), (form, table.name)
            if table.name == "calls":
                all_columns = form in {"csv", "jsonl", "parquet"}
                some = set() if form == "otlp-metrics" else {LEAKS[0]}  # it contains no payloads
                assert leaks(seen[True]) >= ({*LEAKS, MEMBER} if all_columns else some)


@pytest.mark.slow
def test_what_is_exported_with_masks_is_still_what_its_format_says(store, tmp_path):
    export(store, to="har", out=tmp_path / "x.har")
    for entry in json.loads((tmp_path / "x.har").read_text())["log"]["entries"]:
        json.loads(entry["request"]["postData"]["text"])
        json.loads(entry["response"]["content"]["text"])
    export(store, to="otlp", out=tmp_path / "x.jsonl")
    for line in (tmp_path / "x.jsonl").read_text().splitlines():
        for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            known = {a["key"]: a["value"].get("stringValue") for a in span["attributes"]}
            for name in ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"):
                json.loads(known.get(name) or "{}")
    export(store, to="parquet", out=tmp_path / "x.parquet")
    masked = pl.read_parquet(tmp_path / "x.parquet")
    recorded = pl.read_parquet(store / "calls" / "*.parquet")
    assert masked.schema == recorded.schema
    assert masked.height == recorded.height
    for name in ("arguments", "response"):
        for value in masked.get_column(name).drop_nulls():
            json.loads(value)


@pytest.mark.slow
def test_raw_is_a_choice_of_query_show_compare_and_export(store):
    (call_id,) = open_store(store).sql("SELECT call_id FROM calls LIMIT 1").fetchall()[0]
    for words in (
        ("query", store, "SELECT response FROM calls"),
        ("show", store, call_id),
        ("show", store, call_id, "--format", "json"),
        ("compare", store, store, "--format", "json"),
        ("export", store, "--to", "csv"),
    ):
        assert not leaks(printed(*words)), words
        assert leaks(printed(*words, "--raw")), words


@pytest.mark.slow
def test_no_explanation_holds_a_secret_and_none_is_cut_in_half(store):
    calls = open_store(store).sql("SELECT call_id FROM calls").fetchall()
    for (call_id,) in calls[:1] + calls[-1:]:
        for more in ((), ("--full", "--seed"), ("--format", "json", "--seed")):
            out = printed("show", store, call_id, *more)
            assert leaks(out) == set()
            assert SECRETS["github"][:12].encode() not in out


@pytest.mark.slow
def test_no_comparison_gate_or_page_holds_a_secret(store, tmp_path):
    def renamed(_table: type, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(tool=pl.col("tool") + " x") if "tool" in frame.columns else frame

    other = rewritten(store, tmp_path / "other", renamed)
    files = ("--junit", tmp_path / "j.xml", "--sarif", tmp_path / "s.json")
    for form in ("table", "json"):
        gate = ("--fail-on", "vanished", "--all", *files)
        assert leaks(printed("compare", store, other, "--format", form, *gate)) == set()
    assert leaks(printed("compare", store, other, "--metrics", "--format", "json")) == set()
    for name in ("j.xml", "s.json"):
        assert leaks((tmp_path / name).read_bytes()) == set()
    ET.parse(tmp_path / "j.xml")  # noqa: S314  (we wrote it)
    assert leaks(printed("report", store, other, "-o", "-")) == set()


@pytest.mark.slow
def test_nothing_that_the_archive_s_commands_print_holds_a_secret(archive, tmp_path):
    token = SECRETS["github"]
    folder = tmp_path / f"in-{token}"
    folder.mkdir()
    broken = archive.read_bytes() + b'{"v":1,"event":"message","recording":"%b"}\n' % token.encode()
    (folder / "a.jsonl").write_bytes(broken)
    (tmp_path / "labels.jsonl").write_text(json.dumps({"text": token, "verdict": token}) + "\n")
    out = tmp_path / "store"
    files = ("--junit", tmp_path / "j", "--sarif", tmp_path / "s")
    for words in (
        ("check", folder),
        ("check", folder, "--format", "json"),
        ("score", folder, "-o", out, "--fail-on", "findings.error > 0", *files),
        ("query", out, "finding_counts"),
        ("doctor", "--store", out),
        ("doctor", "--store", out, "--format", "json"),
        ("redact", folder, "-o", tmp_path / "copy"),
        ("import", "auto", folder, "-o", tmp_path / "t"),
        ("merge", out, out, "-o", tmp_path / "merged"),
        ("validate", out, "--server", f"demo {token}", "--tool", token, "--arguments", "{}"),
        ("evaluate", tmp_path / "labels.jsonl"),
        ("show", out, token),
    ):
        assert leaks(said := printed(*words)) == set(), (words[0], said)
    for name in ("j", "s"):
        assert leaks((tmp_path / name).read_bytes()) == set()


@pytest.mark.slow
def test_no_answer_of_the_server_holds_a_secret(store):
    async def everything() -> list[str]:
        said = []
        async with Client(server(store, base=store, seconds=600.0)) as client:
            for question in [*question_titles()][::10]:
                asked = {"question": question, "all_columns": True}
                said.append(await client.call_tool("ask", asked))
            (call_id,) = open_store(store).sql("SELECT call_id FROM calls LIMIT 1").fetchall()[0]
            said.append(await client.call_tool("show_call", {"call": call_id}))
            for query in (
                *(f"SELECT * FROM {table.name}" for table in TABLES),
                *MASKED[1:],
            ):
                said += [await client.call_tool("sql", {"query": query})]
            said.append(await client.call_tool("compare", {"every": True}))
        assert sum(each.is_error for each in said) == 1
        return [each.model_dump_json() for each in said]

    for each in asyncio.run(everything()):
        assert leaks(each) == set(), each[:300]
