"""Error groups: what they count, when they began, and whether they still happen."""

from datetime import timedelta

from tests.analytics.built_stores import BEGAN, FAILED, OK, UNCLEAR, build, call


def at(minute, template=None, tool="t", **fields):
    """A call of a minute: with a template one that failed."""
    kind = OK if template is None else FAILED | {"template": template, "error_text": template}
    return call(
        minute, tool, **(kind | {"requested_at": BEGAN + timedelta(minutes=minute)} | fields)
    )


def groups(tmp_path, rows):
    frame = build(tmp_path / "s", rows).ask("error_groups").pl()
    return {row["template"]: row for row in frame.to_dicts()}


def test_errors_with_different_templates_are_different_groups(tmp_path):
    found = groups(tmp_path, [at(0, "duplicate key"), at(1, "foreign key"), at(2, "foreign key")])
    assert {name: row["calls"] for name, row in found.items()} == {
        "duplicate key": 1,
        "foreign key": 2,
    }


def test_a_group_has_the_time_of_its_first_and_last_failure(tmp_path):
    rows = [at(0), at(1, "a"), at(2), at(3, "a"), at(4), at(5, "b")]
    found = groups(tmp_path, rows)["a"]
    assert found["first_seen"] == BEGAN + timedelta(minutes=1)
    assert found["last_seen"] == BEGAN + timedelta(minutes=3)
    assert found["calls_since"] == 2


def test_an_error_is_over_after_more_calls_without_it_than_chance_explains(tmp_path):
    # Four of ten, and one to come: (1 - 4/11)^6 = 0.066, ^7 = 0.042.
    third = [at(i, "a" if i % 3 == 0 else None) for i in range(10)]
    later = [at(i) for i in range(10, 17)]
    assert groups(tmp_path / "6", [*third, *later[:6]])["a"]["ongoing"]
    assert not groups(tmp_path / "7", [*third, *later])["a"]["ongoing"]


def test_one_failure_is_over_after_five_calls_without_it(tmp_path):
    one = [at(0, "a")]
    assert groups(tmp_path / "4", [*one, *(at(i) for i in range(1, 5))])["a"]["ongoing"]
    assert not groups(tmp_path / "5", [*one, *(at(i) for i in range(1, 6))])["a"]["ongoing"]


def test_calls_of_other_tools_and_cancelled_calls_do_not_end_an_error(tmp_path):
    others = [at(i, tool="u") for i in range(1, 30)]
    stopped = [at(i, outcome="cancelled") for i in range(1, 30)]
    assert groups(tmp_path, [at(0, "a"), *others, *stopped])["a"]["ongoing"]


def test_without_times_it_is_unknown_whether_an_error_is_over(tmp_path):
    rows = [at(i, "a" if i < 3 else None, requested_at=None) for i in range(9)]
    found = groups(tmp_path, rows)["a"]
    assert found["calls"] == 3
    assert found["first_seen"] is found["last_seen"] is found["ongoing"] is None


def test_failures_without_a_text_are_grouped_by_outcome(tmp_path):
    rows = [call(1, **(UNCLEAR | {"outcome": "timeout"})), call(2, **UNCLEAR)]
    assert groups(tmp_path, rows).keys() == {"(no text: timeout)", "(no text: protocol_error)"}
