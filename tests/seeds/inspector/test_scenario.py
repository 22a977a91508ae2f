"""Scenarios of calls: derived from their arguments, or given in a file."""

import json

import polars as pl
import pytest

from mcptally.errors import UsageError
from mcptally.jsonschemas.validators import compile_validator, validate_json
from mcptally.seeds.inspector import boundaries, scenario, scenario_file


def frame(rows):
    columns = ("call_id", "session", "recording", "server", "tool", "definition", "arguments")
    names = (*columns, "input_schema_state")
    full = [{name: row.get(name) for name in names} for row in rows]
    return scenario.with_combination(pl.DataFrame(full, schema=dict.fromkeys(names, pl.String)))


def definitions(schema):
    return pl.DataFrame({"definition": ["d"], "input_schema": [json.dumps(schema)]})


def assigned(calls, schema=None, *entries):
    """Return scenario and source of each call."""
    known = definitions({} if schema is None else schema)
    combinations = scenario.argument_combinations(calls)
    return scenario.assign_scenarios(calls, known, combinations, entries)


def scenario_of(arguments, schema=None):
    """Return the scenario of the only call."""
    row = {"server": "s", "tool": "t", "definition": "d", "arguments": arguments}
    return assigned(frame([row]), schema)["scenario"].item()


def derived(schema, arguments, beside=None):
    text = json.dumps(arguments)
    state = validate_json(compile_validator(json.dumps(schema)), text)[0]
    row = {"server": "s", "tool": "t", "definition": "d", "arguments": text}
    rows = [row | {"input_schema_state": state}]
    if beside:
        other = row | {"arguments": json.dumps(beside["arguments"])}
        rows += [other] * beside["calls"]
    found = assigned(frame(rows), schema)
    assert found.height == len(rows)
    assert found["scenario_source"][0] == "arguments"
    return found["scenario"][0]


CASES = [(row.scenario, example, True) for row in scenario.ROWS.values() for example in row.fires]
CASES += [
    (row.scenario, example, False) for row in scenario.ROWS.values() for example in row.silent
]


@pytest.mark.parametrize(("name", "example", "fires"), CASES)
def test_a_scenario_row_fires_and_stays_silent_on_its_own_examples(name, example, fires):
    assert (derived(**example) == name) is fires


def test_a_number_at_a_limit_is_a_boundary_however_it_is_written():
    limits = {
        "minimum": ({"minimum": 5}, ("5", "5.0", "50e-1", "0.5E+1", " 5 ")),
        "negative": ({"minimum": -5}, ("-5", "-5.00")),
        "fraction": ({"maximum": 2.5}, ("2.5", "2.50", "25e-1")),
        "exclusive": ({"type": "integer", "exclusiveMinimum": 9}, ("10",)),
        "exclusive, below": ({"type": "integer", "exclusiveMaximum": -9}, ("-10",)),
        "large": ({"maximum": 10**20}, (str(10**20), "1e20", "100000000000000000000.0")),
        "length": ({"maxLength": 3}, ('"abc"',)),
    }
    for name, (limit, at_limit) in limits.items():
        schemas = definitions({"properties": {"a": limit}})
        others = ("7", "55", '"5"', "[[[7]]]")
        texts = [f'{{"b": 1,"a":{value}}}' for value in (*at_limit, *others)]
        rows = pl.DataFrame({"definition": "d", "arguments": texts})
        found = boundaries.calls_at_boundary(rows, schemas).to_list()
        assert found == [True] * len(at_limit) + [False] * len(others), name


def test_rare_combinations_are_counted_over_all_partitions():
    row = {"server": "s", "tool": "t", "definition": "d", "arguments": '{"a":1}'}
    rows = [row] * 25 + [row | {"arguments": '{"b":1}'}]
    whole = frame(rows)
    parts = [frame(rows[:3]), frame(rows[3:20]), frame(rows[20:])]
    counted = pl.concat([scenario.argument_combinations(part) for part in parts])
    apart = [scenario.assign_scenarios(part, definitions({}), counted) for part in parts]
    together = assigned(whole)
    assert pl.concat(apart).equals(together)
    assert together["scenario"].to_list() == ["happy_path"] * 25 + ["edge_case"]


def test_long_arguments_have_the_combination_of_their_names():
    texts = ['{"b":1,"a":2}', json.dumps({"d": "x" * 20_000, "c": 1}), None, '{"e":1}', "[1]"]
    found = frame([{"tool": "t", "arguments": text} for text in texts])
    assert found["combination"].to_list() == ["a,b", "c,d", "", "e", ""]


@pytest.mark.parametrize(
    "arguments", [None, "5", "[1]", '"x"', "null", "{", '{"a":' * 600 + "1" + "}" * 600]
)
def test_arguments_that_are_not_an_object_have_a_scenario(arguments):
    assert scenario_of(arguments, {"properties": {"a": {"maximum": 1}}}) == "happy_path"


DEFINITIONS = {
    f"d{n}": {"maximum": 5, "allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)
}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"$ref": "#/properties/nowhere/else"}}},
        {"properties": 5, "items": 7, "anyOf": {}, "minimum": "x"},
        True,
        [],
        {"allOf": [{"$ref": "#"}, {"maximum": 3}]},
        {"$ref": "#/$defs/d0", "$defs": DEFINITIONS},  # takes exponential time
        {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2, "maximum": 5},  # by the level
    ],
)
def test_a_recursive_or_invalid_schema_sets_no_limits(schema):
    for depth in (2, 60):
        assert scenario_of('{"a":' * depth + "4" + "}" * depth, schema) == "happy_path"


def test_calls_of_other_methods_have_no_scenario():
    calls = frame([{"server": "s", "arguments": '{"a":""}'}])
    assert assigned(calls).row(0) == (None, None)


ROWS = [
    {"call_id": "1", "session": "x", "server": "git", "tool": "git_commit",
     "arguments": '{"repo":"/nope","n":1}'},
    {"call_id": "2", "session": "x", "server": "git", "tool": "git_log",
     "arguments": '{"repo":"/home","n":true}'},
    {"call_id": "3", "session": "y", "server": "github", "tool": "a.b(c)*", "arguments": None},
    {"call_id": "4", "session": "y", "server": "github", "tool": None, "arguments": "{}"},
]  # fmt: skip


def scenarios_by_call(tmp_path, text, name="s.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = assigned(frame(ROWS), {}, *scenario_file.load_scenarios(path))
    return {
        row["call_id"]: found["scenario"][i]
        for i, row in enumerate(ROWS)
        if found["scenario_source"][i] == "given"
    }


@pytest.mark.parametrize(
    ("entry", "calls"),
    [
        ('tool = "git_commit"', {"1"}),
        ('tool = "git_*"', {"1", "2"}),
        ('tool = "git_lo?"', {"2"}),
        ('tool = "*"', {"1", "2", "3"}),
        ('tool = "a.b(c)*"', {"3"}),
        ('tool = "a?b(c)?"', {"3"}),
        ('tool = "GIT_*"', set()),
        ('server = "git"', {"1", "2"}),
        ('server = "git"\ntool = "*log"', {"2"}),
        ('arguments = { repo = "/nope" }', {"1"}),
        ("arguments = { n = 1 }", {"1"}),
        ("arguments = { n = 1.0 }", {"1"}),
        ("arguments = { n = true }", {"2"}),
        ('session = "y"', {"3"}),
        ('call_id = "2"', {"2"}),
    ],
)
def test_an_entry_matches_the_calls_with_its_values(tmp_path, entry, calls):
    found = scenarios_by_call(tmp_path, f'[[scenario]]\nscenario = "edge_case"\n{entry}\n')
    assert found == dict.fromkeys(calls, "edge_case")


@pytest.mark.parametrize(
    ("wanted", "matches"), [("[1, {a = 2}]", True), ("[true, {a = 2}]", False), ("[1]", False)]
)
def test_1_does_not_match_true_at_any_depth(tmp_path, wanted, matches):
    (tmp_path / "s.toml").write_text(
        f'[[scenario]]\nscenario = "boundary"\narguments = {{n = {wanted}}}\n'
    )
    calls = frame([{"server": "s", "tool": "t", "arguments": '{"n":[1.0,{"a":2}]}'}])
    (entry,) = scenario_file.load_scenarios(tmp_path / "s.toml")
    assert entry.matched(calls).to_list() == ["boundary" if matches else None]


def test_the_first_entry_that_matches_counts(tmp_path):
    text = json.dumps(
        [
            {"scenario": "error_case", "arguments": {"repo": "/nope"}},
            {"scenario": "boundary", "server": "git"},
        ]
    )
    assert scenarios_by_call(tmp_path, text, "s.json") == {"1": "error_case", "2": "boundary"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[scenario]]\nscenario = 'hapy_path'\ntool = 'x'", "did you mean happy_path"),
        ("[[scenario]]\nscenario = 'boundary'", "name calls with server, tool"),
        ("[[scenario]]\nscenario = 'boundary'\ntol = 'x'", "did you mean tool"),
        (
            "[[scenario]]\nscenario = 'boundary'\ntool = 5",
            r"got `int` - at `\$.tool`",
        ),
        ("[[scenario]]\nscenario = 'boundary'\narguments = 5", r"got `int` - at `\$.arguments`"),
        ("x = 1", "contains no scenario"),
        ("[[", "is not TOML"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place_and_a_hint(tmp_path, text, says):
    path = tmp_path / "s.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        scenario_file.load_scenarios(path)
    with pytest.raises(UsageError, match=r"s\.toml"):
        scenario_file.load_scenarios(path)


def test_a_name_that_no_table_can_store_is_refused(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(r'[{"scenario": "boundary", "tool": "\ud800"}]', encoding="utf-8")
    with pytest.raises(UsageError, match=r"s\.json: scenario 1: a name has an unpaired surrogate"):
        scenario_file.load_scenarios(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml"):
        scenario_file.load_scenarios(tmp_path / "none.toml")
