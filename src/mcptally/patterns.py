"""Regular expressions of strangers' schemas: read once, matched without backtracking for ever."""

import functools
from typing import Any

import jsonschema_rs


@functools.lru_cache(maxsize=4096)
def pattern(text: str) -> Any:
    """A validator of strings that match, without backtracking for ever; None: no pattern."""
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": text})
    except (jsonschema_rs.ValidationError, ValueError):
        return None
