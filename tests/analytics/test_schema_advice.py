"""The question `schema_advice`: which constraints would have stopped failing calls."""

import json

import pytest

from tests.analytics.built_stores import Servers, call, definition
from tests.analytics.test_contrasts import calls

SERVERS = Servers()


def case(arguments, fails, schema, *, works_anyway=0):
    """Return calls to a tool with all these arguments in ten sessions, and two without JSON.

    `works_anyway` is the number of sessions in which all calls work.
    """
    rows = calls(
        arguments,
        lambda given, session: fails(given) and session >= works_anyway,
        definition=lambda _: "d",
    )
    rows += [call("damaged", arguments=text, definition="d") for text in ('{"', None)]
    return SERVERS.add(rows, [definition("t", definition="d", input_schema=json.dumps(schema))])


def properties(**named):
    return {"type": "object", "properties": named}


TEXT, LIST, NUMBER = {"type": "string"}, {"type": "array"}, {"type": "integer"}
ZONES = [{"zone": zone} for zone in ("", "UTC", "Asia/Tokyo")]
NESTED = [{"a": {"n": n}} for n in (-4, -2, 3, 5)]

PROPOSED = {
    "an empty text": (
        case(ZONES, lambda a: not a["zone"], properties(zone=TEXT)),
        ("zone", "minLength: 1", properties(zone=TEXT | {"minLength": 1})),
    ),
    "an empty list": (
        case([{"x": x} for x in ([], ["a"], ["b"])], lambda a: not a["x"], properties(x=LIST)),
        ("x", "minItems: 1", properties(x=LIST | {"minItems": 1})),
    ),
    "a negative number inside of an object": (
        case(NESTED, lambda a: a["a"]["n"] < 0, properties(a=properties(n=NUMBER))),
        ("a.n", "minimum: 0", properties(a=properties(n=NUMBER | {"minimum": 0}))),
    ),
    "a missing argument": (
        case(
            [{"q": 1}, {"q": 2, "z": "x"}, {"q": 1, "z": "y"}],
            lambda a: "z" not in a,
            properties(q=NUMBER, z=TEXT) | {"required": ["q"]},
        ),
        ("z", 'required: ["q","z"]', properties(q=NUMBER, z=TEXT) | {"required": ["q", "z"]}),
    ),
    "another type": (
        case(
            [{"q": q} for q in (1, True, "a", "b", "c")],
            lambda a: not isinstance(a["q"], str),
            properties(q={"description": "any"}),
        ),
        ("q", 'type: "string"', properties(q={"description": "any", "type": "string"})),
    ),
}
NOT_PROPOSED = {
    "the schema has the constraint": case(
        ZONES, lambda a: not a["zone"], properties(zone=TEXT | {"minLength": 1})
    ),
    "too many calls that work would be stopped": case(
        ZONES, lambda a: not a["zone"], properties(zone=TEXT), works_anyway=3
    ),
    "a value that no keyword describes": case(
        ZONES, lambda a: a["zone"] == "UTC", properties(zone=TEXT)
    ),
    "the argument is described elsewhere": case(
        ZONES, lambda a: not a["zone"], {"$ref": "#/$defs/a", "$defs": {}}
    ),
}
FEW = case(
    [*ZONES, {"zone": ""}, {"zone": ""}],
    lambda a: not a["zone"],
    properties(zone=TEXT),
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return SERVERS.build(tmp_path_factory.mktemp("advice") / "s")


@pytest.mark.parametrize("cause", PROPOSED)
def test_a_constraint_is_proposed_with_the_changed_schema(cause, answers):
    server, (argument, constraint, schema) = PROPOSED[cause]
    [row] = answers.of(server, "schema_advice")
    assert (row["argument"], row["constraint"]) == (argument, constraint)
    assert json.loads(row["new_schema"]) == schema
    assert (row["failed_stopped"], row["ok_stopped"]) == (row["failed"], 0)


@pytest.mark.parametrize("why", NOT_PROPOSED)
def test_no_constraint_is_proposed(why, answers):
    server = NOT_PROPOSED[why]
    assert answers.of(server, "contrasts")[0]["test"] is not None
    assert answers.of(server, "schema_advice") == []


def test_every_call_that_would_be_stopped_is_counted(answers):
    [row] = answers.of(FEW, "schema_advice")
    numbers = ("failed_stopped", "ok_stopped", "failed", "calls")
    assert [row[name] for name in numbers] == [30, 0, 30, 50]
