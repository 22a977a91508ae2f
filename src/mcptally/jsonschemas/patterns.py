"""Regular expressions of strangers' schemas: how they are read, and how much memory they get.

The engine goes back a bounded number of steps, so matching ends; an automaton may be a million
times as large as what is written (`((a{1,50}){1,50}){1,50}`), so its size is bounded, too.
"""

import functools
from typing import Any, Final

import jsonschema_rs

LARGEST: Final = 1 << 20
"""Bytes that the automaton of a pattern may take; those of recorded schemas take less than 64 KiB.
Twice that, for matching keeps as much again."""

TOGETHER: Final = 16 << 20
"""Bytes that those of one schema may take together."""

FEW: Final = 32
"""Schemas with patterns that are kept compiled at a time."""


def may_hold_patterns(text: str) -> bool:
    """Whether a schema's JSON text may have a pattern."""
    return "attern" in text or "\\u" in text


def options(schema: Any, **limits: int) -> jsonschema_rs.FancyRegexOptions:
    """How an engine has to read the patterns of a schema; `limits` are further ones."""
    size = min(LARGEST, TOGETHER // max(_count(schema), 1))
    return jsonschema_rs.FancyRegexOptions(size_limit=size, dfa_size_limit=size, **limits)


def _count(schema: Any) -> int:
    """Patterns of a schema, and what may be taken for one."""
    found = 0
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict):
            todo += node.values()
            found += "pattern" in node
            names = node.get("patternProperties")
            found += len(names) if isinstance(names, dict) else 0
    return found


@functools.lru_cache(maxsize=FEW)
def pattern(text: str) -> Any:
    """A validator of strings that match, without backtracking for ever; None: no pattern."""
    schema = {"pattern": text}
    try:
        return jsonschema_rs.Draft202012Validator(schema, pattern_options=options(schema))
    except (jsonschema_rs.ValidationError, ValueError):
        return None
