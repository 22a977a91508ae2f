"""A revision of the protocol is one row of `revisions.toml`."""

import pytest

from mcptally.errors import RuleError
from mcptally.protocol.revisions import ERA, STATELESS, methods
from mcptally.rules.findings import REVISIONS, FindingRule, finding_rules


def rule(**fields: object) -> FindingRule:
    known = {"id": "a.b", "title": "t", "source": "s", "severity": "info", "about": "call"}
    return FindingRule(**known, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "revisions"),
    [
        ({}, ()),
        ({"since": REVISIONS[0]}, REVISIONS),
        ({"since": REVISIONS[-1]}, REVISIONS[-1:]),
        ({"since": REVISIONS[1], "until": REVISIONS[2]}, REVISIONS[1:3]),
        ({"since": REVISIONS[0], "apart_from": (REVISIONS[1],)}, (REVISIONS[0], *REVISIONS[2:])),
    ],
)
def test_a_rule_holds_from_its_first_revision_to_its_last(
    fields: dict[str, object], revisions: tuple[str, ...]
) -> None:
    assert rule(**fields).revisions == revisions


def test_a_rule_of_an_unknown_revision_is_an_error() -> None:
    with pytest.raises(RuleError, match="since '2024-11-06' is not one of"):
        rule(since="2024-11-06")


def test_a_rule_without_a_last_revision_holds_for_the_newest() -> None:
    assert all(
        REVISIONS[-1] in each.revisions
        for each in finding_rules().values()
        if each.since and not each.until
    )


def test_the_newest_revision_is_known_wherever_revisions_are() -> None:
    newest = REVISIONS[-1]
    assert newest in STATELESS
    assert newest in ERA
    assert newest in set(methods().get_column("revision"))
