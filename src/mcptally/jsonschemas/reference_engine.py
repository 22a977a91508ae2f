"""Validates with the library jsonschema if the fast engine rejects a schema.

Importing jsonschema takes 0.1 s, and most archives do not need it: import this module lazily.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import jsonschema
from jsonschema.exceptions import UnknownType
from referencing import Registry
from referencing.exceptions import Unresolvable

from mcptally.jsonschemas.patterns import compile_pattern

CLASSES: Final[Mapping[str, Any]] = {
    "2020-12": jsonschema.Draft202012Validator,
    "2019-09": jsonschema.Draft201909Validator,
    "draft-07": jsonschema.Draft7Validator,
    "draft-06": jsonschema.Draft6Validator,
    "draft-04": jsonschema.Draft4Validator,
}
"""Maps each dialect to jsonschema's validator class."""

UNDECIDED: Final = (RecursionError, Unresolvable, UnknownType)
"""Exceptions that a jsonschema validator raises if it cannot evaluate a schema."""

_UNBOUNDED: Final = ("patternProperties", "$schema", "uniqueItems", "unevaluated")
"""Keywords with which jsonschema runs patterns with `re` or takes quadratic time."""


def faults(name: str, schema: Any) -> list[Any]:
    """Validate a schema against its dialect's metaschema, and return jsonschema's errors.

    Raises:
        RecursionError: the schema is nested too deeply.
    """
    cls = CLASSES[name]
    return list(cls(cls.META_SCHEMA).iter_errors(schema))


def error_finder(name: str, schema: Any) -> Callable[[Any], list[Any]] | None:
    """Return a function that finds the errors in a value, or None if jsonschema cannot be used.

    The schema must be valid and without `$schema`. jsonschema cannot be used if a word in
    `_UNBOUNDED` occurs. The returned function may raise the exceptions in `UNDECIDED`.
    """
    if any(word in str(schema) for word in _UNBOUNDED):
        return None
    cls = jsonschema.validators.extend(CLASSES[name], {"pattern": _pattern})
    validator = cls(schema, registry=Registry())
    return lambda value: list(validator.iter_errors(value))


def _pattern(_: Any, text: Any, value: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """Check the keyword `pattern` with the fast engine: Python's `re` may take exponential time."""
    if isinstance(value, str) and isinstance(text, str):
        matcher = compile_pattern(text)
        if matcher is not None and not matcher.is_valid(value):
            yield jsonschema.ValidationError("does not match", validator="pattern")
