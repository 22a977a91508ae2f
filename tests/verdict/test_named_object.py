"""An object that an error text names is the caller's if the arguments name it."""

import polars as pl
import pytest

from mcptally.verdict import judge, named_object


def a_call(arguments: str | None, tool: str = "t") -> pl.DataFrame:
    schema = {"text": pl.UInt32, "arguments": pl.String, "tool": pl.String}
    return pl.DataFrame({"text": [0], "arguments": [arguments], "tool": [tool]}, schema=schema)


def source(text: str, arguments: str | None) -> str | None:
    return named_object.source(pl.Series([text]), a_call(arguments))[0]


NAMED: dict[str | None, list[tuple[str, str | None]]] = {
    "caller": [
        ("ENOENT: no such file or directory, open '/srv/files/notes.txt'", '{"path": "notes.txt"}'),
        ("open '/srv/reports/report-17.xlsx'", '{"report": "report-17"}'),
        ("open '/srv/rome/index.json'", '{"city": "Rome"}'),
        ("stat /home/ann/film.prj: no such file or directory", '{"file": "/home/ann/film.prj"}'),
        ("no such table: orders", '{"sql": "select * from orders"}'),
        ("can't open 'a.txt'", '{"path": "a.txt"}'),
        ("No item '7'", '{"item": 7}'),
        ("Bad path '$'", '{"path": "$"}'),
        ("Exit code '1': /srv/a.txt does not exist", '{"path": "/srv/a.txt"}'),
        ("can't open 'b.txt'", '{"paths": "a.txt\\nb.txt"}'),
        (f"stat /srv/{'a' * 300}", f'{{"path": "{"a" * 400}"}}'),
        ("No enum constant app.Zone.URBAN", '{"zone": "URBAN"}'),
        ("No such file or directory @ rb_sysopen - a/stops.csv", '{"path": "stops.csv"}'),
        ("cannot read ''", '{"path": ""}'),
        ('code": "E_IO", "message": "/srv/a does not exist", "hint": "h"}}', '{"path": "/srv/a"}'),
        ("/usr/bin/find: ‘/srv/a.txt’: No such file or directory", '{"path": "/srv/a.txt"}'),  # noqa: RUF001
        ("No such file or directory: 'svn'", '{"command": "svn log"}'),
        (
            "time data '2026-11-02 25:00' does not match",
            '{"day": "2026-11-02", "hour": "25:00"}',
        ),
    ],
    "server": [
        ("open '/srv/app/rates.json'", '{"currency": "EUR"}'),
        ("open /etc/app/config.yaml: no such file or directory", "{}"),
        ("no such column: margin", '{"order": "O-1"}'),
        ("no such table: cases\n[parameters: ('C-17',)]", '{"case": "C-17"}'),
        ("could not convert string to float: 'n/a'", '{"article": "A-3"}'),
        ("open 'data.json'", '{"data": 1}'),
        ("Cannot read '$' of 'k': unknown command 'JSON.GET'", '{"key": "k"}'),
        ("NOT NULL constraint failed: audit.actor", '{"order": "O-1"}'),
        ("No enum constant app.Zone.URBAN", '{"route": "A4"}'),
        ("No such file or directory @ rb_sysopen - stops.csv", '{"route": "A4"}'),
        ("/bin/sh: 1: wkhtmltopdf: not found", '{"format": "pdf"}'),
        ("open '/srv/app/catalog.db'", '{"word": "cat"}'),
        ("Cannot start in '/srv/a': No such file or directory: 'lake'", '{"path": "/srv/a/B"}'),
        ("No such file or directory: 'svn'", '{"path": "/srv/server-svn-ok"}'),
    ],
    None: [
        ("open '/srv/app/rates.json'", None),
        ("boom", "{}"),
        ("open 'é.txt'", '{"a": "\\u00e9"}'),
        ('429 - {"error":{"code":"SLOW","message":"Slow down"}}', "{}"),
    ],
}
"""Whose an object is that an error text names, by the call's arguments; None: it is unknown."""


@pytest.mark.parametrize(
    ("owner", "text", "arguments"),
    [(owner, *case) for owner, cases in NAMED.items() for case in cases],
)
def test_an_object_is_the_callers_if_the_arguments_name_it(owner, text, arguments):
    assert source(text, arguments) == owner


@pytest.mark.parametrize(
    ("text", "arguments", "tool", "expected"),
    [
        ("Contacts database not found", '{"phone": "123"}', "send", True),
        ("Index not found", "{}", "rebuild_index", True),
        ("The kernel could not be started", '{"title": "a"}', "run", True),
        ("Failed to mount the sound archive: EIO", '{"bird": "robin"}', "play", True),
        ("Contacts database not found", '{"db_name": "x"}', "send", False),
        ("Database not found", '{"name": "shop"}', "drop_database", False),
        ("Index not found", '{"indexes": ["a"]}', "run", False),
        ("The kernel could not be started", '{"name": "kernel-3"}', "run", False),
        ("Database not found", None, "run", False),
        ("Task not found", '{"id": 5}', "run", False),
    ],
)
def test_a_component_that_neither_arguments_nor_tool_mention_is_the_servers(
    text, arguments, tool, expected
):
    found = named_object.names_unmentioned_component(pl.Series([text]), a_call(arguments, tool))
    assert found[0] == expected


def verdict(text: str, arguments: str) -> str:
    call = {"outcome": "tool_error", "error_text": text, "arguments": arguments}
    return judge(pl.DataFrame([call]))["verdict"][0]


@pytest.mark.slow
def test_data_that_does_not_decode_is_the_callers_only_if_the_caller_sent_some():
    text = "Expecting ',' delimiter: line 1 column 25 (char 24)"
    assert verdict(text, '{"document": "[1 2]"}') == "business"
    assert verdict(text, '{"city": "Rome"}') == "tool_failure"
    text = "Expected ':' after property name in JSON at position 27"
    assert verdict(text, '{"document": "{a"}') == "business"
    assert verdict(text, '{"city": "Rome"}') == "infrastructure"
    text = "Unexpected end of JSON input"
    assert verdict(text, '{"document": "[1 2"}') == "business"
    assert verdict(text, '{"city": "Rome"}') == "infrastructure"
    text = "'utf-8' codec can't decode byte 0xe9 in position 3: invalid continuation byte"
    assert verdict(text, '{"file": "a.txt"}') == "business"
    assert verdict(text, '{"limit": 5}') == "tool_failure"


@pytest.mark.parametrize(
    ("text", "is_named"),
    [("no rates for Berlin.", True), ("no rates for East-Berlin", True), ("no Berliner", False)],
)
def test_a_text_contains_a_value_of_the_arguments_as_whole_words(text, is_named):
    call = {"outcome": "tool_error", "error_text": text, "arguments": '{"city": "Berlin"}'}
    evidence = judge(pl.DataFrame([call]))["evidence"].to_list()[0] or []
    assert ("verdict.archive.names-argument" in evidence) == is_named
