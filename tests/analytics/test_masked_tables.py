"""The tables of a masked store have no secrets, so that no SQL can recover one."""

import json
import shutil
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.errors import QueryError
from mcptally.store.manifest import MASKED
from mcptally.tables.all_tables import TABLES
from tests.transcripts import call, event, exchange, opened, request, result, text, write

pytestmark = pytest.mark.slow

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8xC0uR5tY1"
PASSWORD = "kestrel-Umbra" + "-4471"
"""A secret only because of its argument's name; replies and findings repeat it without the name."""

SCHEMA = {
    "type": "object",
    "properties": {"password": {"type": "string", "maxLength": 4}, "note": {"type": "string"}},
}


def recorded(server: str, *, secret: bool) -> list[dict]:
    token, password = (TOKEN, PASSWORD) if secret else ("null", "null")
    tools = [{"name": "login", "description": f"uses {token}", "inputSchema": SCHEMA}]
    events = [
        opened(server=server, command=["demo", f"--api-key={token}"]),
        *exchange(request("l", "tools/list"), result("l", tools=tools)),
        event("stderr", 3, text=f"Traceback (most recent call last):\nKeyError: '{token}'"),
    ]
    messages = []
    for number in range(8):
        messages.append(call(number, "login", password=password, note=f"call {number}: {token}"))
        said = f"Sorry, {password} and {token} were refused"
        messages.append(text(number, said, isError=number % 2 == 0))
    return [{**each, "recording": server} for each in (*events, *exchange(*messages, first=4))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("masked")
    write(place / "a.jsonl", recorded("demo", secret=True))
    mt.score([place / "a.jsonl"], out=place / "store")
    return place / "store"


@pytest.fixture(scope="module")
def masked(folder: Path) -> mt.Store:
    return mt.open_store(folder, masked=True)


def leaked(said: str) -> list[str]:
    return [secret for secret in (TOKEN, PASSWORD) if secret in said or secret[4:16] in said]


def texts(store: mt.Store) -> str:
    return "\n".join(
        json.dumps(store.sql(f"SELECT * FROM {table.name}").pl().to_dicts(), default=str)
        for table in TABLES
    )


def test_the_store_holds_the_secrets_that_a_masked_store_does_not(folder, masked):
    assert leaked(texts(mt.open_store(folder))) == [TOKEN, PASSWORD]
    assert leaked(texts(masked)) == []


def test_a_secret_is_masked_where_a_reply_a_template_or_a_finding_repeats_it(masked):
    row = masked.sql("SELECT * FROM calls WHERE outcome = 'tool_error' LIMIT 1").pl().to_dicts()[0]
    assert row["error_text"] == "Sorry, [redacted:secret] and [redacted:github-token] were refused"
    assert json.loads(row["arguments"])["password"].startswith("[redacted:")
    assert masked.sql("SELECT count(*) FROM findings WHERE path = '/password'").fetchall() > [(0,)]


def test_files_with_the_secrets_cannot_be_read(folder, masked):
    (path,) = (folder / "calls").glob("*.parquet")
    for query in (
        f"SELECT * FROM read_parquet('{path}')",
        f"SELECT * FROM read_text('{folder.parent}/a.jsonl')",
        f"SELECT * FROM read_parquet('{folder}/{MASKED}/../calls/{path.name}')",
    ):
        with pytest.raises(QueryError):
            masked.sql(query).fetchall()


def test_a_masked_name_can_be_used_to_ask(tmp_path):
    write(tmp_path / "a.jsonl", recorded(f"demo {TOKEN}", secret=True))
    mt.score([tmp_path / "a.jsonl"], out=tmp_path / "store")
    masked = mt.open_store(tmp_path / "store", masked=True)
    ((server,),) = masked.sql("SELECT DISTINCT server FROM calls").fetchall()
    assert server == "demo [redacted:github-token]"
    assert masked.ask("tool_scores", server=server).fetchall()
    assert masked.ask("latency", server=server, since="2000-01-01").fetchall()


def test_copies_are_written_once_and_a_part_without_secrets_is_a_link(tmp_path):
    write(tmp_path / "a.jsonl", recorded("demo", secret=False))
    mt.score([tmp_path / "a.jsonl"], out=tmp_path / "store")
    for _ in range(2):
        mt.open_store(tmp_path / "store", masked=True).sql("SELECT * FROM calls").fetchall()
        copies = list((tmp_path / "store" / MASKED).glob("*/*/*.parquet"))
        (part,) = (tmp_path / "store/calls").iterdir()
        assert part.samefile(next(copy for copy in copies if copy.parent.name == "calls"))
        assert all(copy.stat().st_nlink == 2 for copy in copies)


def test_a_question_about_names_does_not_mask_payloads(tmp_path):
    write(tmp_path / "a.jsonl", recorded("demo", secret=True))
    mt.score([tmp_path / "a.jsonl"], out=tmp_path / "store")
    masked = mt.open_store(tmp_path / "store", masked=True)
    assert masked.ask("tool_scores").fetchall()
    names = {path.name for path in (tmp_path / "store" / MASKED).glob("*/*")}
    assert names == {"usage", "tools", "recordings"}
    assert leaked(texts(masked)) == []


def test_the_copies_of_parts_that_a_run_replaced_are_removed(tmp_path):
    write(tmp_path / "a.jsonl", recorded("demo", secret=True))
    write(tmp_path / "b.jsonl", recorded("other", secret=True))
    mt.score([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], out=tmp_path / "store")
    mt.open_store(tmp_path / "store", masked=True).sql("SELECT * FROM calls").fetchall()
    mt.score([tmp_path / "a.jsonl"], out=tmp_path / "store")
    live = {path.name for path in (tmp_path / "store/calls").iterdir()}
    copies = {path.name for path in (tmp_path / "store" / MASKED).glob("*/calls/*")}
    assert copies <= live
    masked = mt.open_store(tmp_path / "store", masked=True)
    assert masked.sql("SELECT DISTINCT server FROM calls").fetchall() == [("demo",)]


def test_a_store_that_cannot_be_written_is_masked_in_a_temporary_folder(folder, tmp_path):
    copy = tmp_path / "store"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(MASKED))
    (copy / MASKED).write_text("in the way")
    masked = mt.open_store(copy, masked=True)
    assert leaked(texts(masked)) == []


def test_a_copy_has_the_rows_and_types_of_its_table(folder, masked):
    for table in TABLES:
        recorded_rows = mt.open_store(folder).sql(f"SELECT * FROM {table.name}").pl()
        copied = masked.sql(f"SELECT * FROM {table.name}").pl()
        assert copied.schema == recorded_rows.schema
        assert copied.height == recorded_rows.height
