"""Printed and exported values do not contain secrets."""

import json

import pytest

import mcptally as mt
from tests import transcripts as t
from tests.commands import run_bytes

pytestmark = pytest.mark.slow

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("display")
    detail = {"error_detail": {"category": "auth", "code": "BAD", "details": {"token": SECRET}}}
    lines = [
        t.opened(),
        t.c2s(1, t.call(1, "login", api_key=SECRET)),
        t.s2c(2, t.text(1, json.dumps(detail), isError=True)),
    ]
    mt.score([t.write(folder / "a.jsonl", lines)], out=folder / "store")
    return folder / "store"


def printed(*arguments):
    done = run_bytes(*arguments)
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "parquet"])
def test_query_output_masks_tokens(store, form):
    sql = "SELECT arguments, response, error_text, error_details FROM calls"
    out = printed("query", store, sql, "--format", form)
    assert SECRET.encode() not in out
    assert b"redacted:" in out


@pytest.mark.parametrize("form", ["table", "json"])
def test_show_masks_tokens(store, form):
    ((call,),) = mt.open_store(store).sql("SELECT call_id FROM calls").fetchall()
    out = printed("show", store, call, "--format", form)
    assert SECRET.encode() not in out
    assert b"redacted:" in out


def test_the_store_keeps_the_recorded_values(store):
    ((arguments,),) = mt.open_store(store).sql("SELECT arguments FROM calls").fetchall()
    assert SECRET in arguments
