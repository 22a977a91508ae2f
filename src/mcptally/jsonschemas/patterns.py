"""Compiles the regular expressions in untrusted schemas within limits on time and memory.

The engine limits backtracking, so matching always terminates. An automaton can be a million times
as large as its pattern (`((a{1,50}){1,50}){1,50}`), so its size is also limited.
"""

import functools
from typing import Any, Final

import jsonschema_rs

MAX_PATTERN_BYTES: Final = 1 << 20
"""Maximum memory in bytes for compiling a pattern; matching it may use the same amount again.
Patterns in recorded schemas need less than 64 KiB."""

MAX_SCHEMA_BYTES: Final = 16 << 20
"""Maximum memory in bytes for all compiled patterns of a schema."""

MAX_CACHED_SCHEMAS: Final = 32
"""Maximum number of compiled schemas with patterns in the cache."""


def may_have_patterns(text: str) -> bool:
    """Return whether a schema's JSON text may contain a pattern."""
    return "attern" in text or "\\u" in text


def pattern_options(schema: Any, **limits: int) -> jsonschema_rs.FancyRegexOptions:
    """Return jsonschema-rs's options for compiling a schema's patterns within the memory limits.

    Args:
        schema: the schema.
        limits: further options.
    """
    size = min(MAX_PATTERN_BYTES, MAX_SCHEMA_BYTES // max(_count(schema), 1))
    return jsonschema_rs.FancyRegexOptions(size_limit=size, dfa_size_limit=size, **limits)


def _count(schema: Any) -> int:
    """Return an upper bound on the number of patterns in a schema."""
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


@functools.lru_cache(maxsize=MAX_CACHED_SCHEMAS)
def compile_pattern(text: str) -> Any:
    """Compile a pattern to a validator of strings; return None if the pattern is invalid."""
    schema = {"pattern": text}
    try:
        return jsonschema_rs.Draft202012Validator(schema, pattern_options=pattern_options(schema))
    except (jsonschema_rs.ValidationError, ValueError):
        return None
