"""Parses the JSON texts of a validation: its request, its answer and the input schema.

The texts are untrusted: invalid parts become violations, and valid parts are still parsed.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from mcptally import rules as rule_files
from mcptally.seeds.violation import Violation
from mcptally.verdict import match
from mcptally.wire.json_text import first_present, json_value

ANSWER: Final = ("valid", "errors", "warnings")
"""The members that an answer must have; it may have no others."""


class PhaseRule(rule_files.Rule, frozen=True, kw_only=True):
    """A rule whose patterns show a validation's phase: how thoroughly it checks."""

    phase: str
    matches: tuple[str, ...]


class Request(NamedTuple):
    """The call that a validation is about: the tool and its arguments."""

    tool: str | None
    arguments: Any
    member: str | None
    """Name of the member with the call's arguments: `arguments` (document) or `parameters`
    (program); None if there is neither."""


class Answer(NamedTuple):
    """The server's answer to a validation, and the violations in it."""

    valid: bool | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()


def parse_request(arguments: str | None) -> Request:
    """Parse the request in the arguments of a validation, which are JSON text."""
    value = json_value(arguments)
    if not isinstance(value, dict):
        return Request(None, None, None)
    tool = first_present(value, "tool", "name")
    member = next((name for name in ("arguments", "parameters") if name in value), None)
    return Request(tool if isinstance(tool, str) else None, value.get(member or ""), member)


def parse_answer(response: str | None) -> Answer:
    """Parse the answer in a validation's result (JSON text); violations' codes are rule ids."""
    result = json_value(response)
    if not isinstance(result, dict):
        return Answer()
    path, members = _find_answer(result)
    if members is None:
        message = "the answer is not a JSON object {valid, errors, warnings}"
        return Answer(violations=(Violation("/content", message, "validation.answer_shape"),))
    violations = list(_shape_violations(members, path))
    valid = members.get("valid")
    valid = valid if isinstance(valid, bool) else None
    errors, warnings = (_strings(members.get(name)) for name in ("errors", "warnings"))
    if valid is True and errors:
        message, evidence = f"valid is true, but there are {len(errors)} errors", errors[0][:200]
        violations.append(Violation(path, message, "validation.valid_with_errors", evidence))
    if valid is False and not errors:
        message = "valid is false, but no error says why"
        violations.append(Violation(path, message, "validation.invalid_without_errors"))
    if result.get("isError") is True:
        message = "isError is true, although an invalid call is not an error of the validation"
        violations.append(Violation("/isError", message, "validation.answer_is_error"))
    return Answer(valid, errors, warnings, tuple(violations))


def _find_answer(result: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the JSON Pointer of the answer in a result, and the answer's members or None.

    The answer is structuredContent, a text, or (for the method `tools/validate`) the result itself.
    """
    structured = result.get("structuredContent")
    if isinstance(structured, dict) and "valid" in structured:
        return "/structuredContent", structured
    content = result.get("content")
    if isinstance(content, str):  # the document's code returns the answer as the text `content`
        content = [{"type": "text", "text": content}]
    for number, block in enumerate(content if isinstance(content, list) else ()):
        value = json_value(block.get("text")) if isinstance(block, dict) else None
        if isinstance(value, dict):
            return f"/content/{number}/text", value
    return "", result if "valid" in result else None


def _shape_violations(members: dict[str, Any], path: str) -> Iterator[Violation]:
    for name in ANSWER:
        value = members.get(name)
        if name == "valid":
            has_type, kind = isinstance(value, bool), "a boolean"
        else:
            has_type = isinstance(value, list) and all(isinstance(each, str) for each in value)
            kind = "a list of strings"
        if not has_type:
            problem = "is missing" if name not in members else f"is not {kind}"
            message, evidence = f"{name} {problem}", str(value)[:200]
            yield Violation(f"{path}/{name}", message, "validation.answer_shape", evidence)
    if extra := sorted(members.keys() - {*ANSWER}):
        message = f"has members besides valid, errors and warnings: {', '.join(extra[:5])}"
        yield Violation(path, message, "validation.answer_extra")


def is_vague(text: str, arguments: Any) -> bool:
    """Return whether an error text is vague: it has no value, quote, location or number.

    A parameter's name suffices if the text also states the expected value: `path is required` is
    specific, `Invalid path` is vague.
    """
    text = text[:_VAGUE_CHARS]  # to limit the time that searches take
    if _SPECIFIC.search(text):
        return False
    members = arguments if isinstance(arguments, dict) else {}
    low = text.lower()
    for name, value in members.items():
        if isinstance(value, str) and len(value) > 1 and value.lower() in low:
            return False
        if name.lower() in low and _EXPECTATION.search(text):
            return False
    return _NAMED_PARAMETER.search(text) is None


_VAGUE_CHARS: Final = 1000
_SPECIFIC: Final = re.compile(r"""["'`][^"'`]+["'`]|[/\\]\w|\w://|\d|\w_\w|[:=]\s*\S{2}""")
_EXPECTATION: Final = re.compile(
    r"(?i)\b(?:required|missing|must|should|expected|cannot|not|exceeds?|needs?|too)\b"
)
_NAMED_PARAMETER: Final = re.compile(
    r"(?i)\b(?:missing|required|unknown)\b.*\b(?:parameter|argument|tool)\W+\w"
)


@functools.cache
def phases() -> tuple[PhaseRule, ...]:
    """Return the rules about phases, from the shallowest phase to the deepest."""
    return rule_files.load(PhaseRule, "phases.toml")


def phase(texts: Sequence[str]) -> str | None:
    """Return the deepest phase that the texts of an answer show, or None."""
    column = pl.Series(list(texts), dtype=pl.String)
    shown = [
        rule.phase
        for rule in phases()
        if column.str.contains(match.alternation(rule.matches)).any()
    ]
    return shown[-1] if shown else None


def canonical(value: Any) -> str:
    """Encode a value as JSON with sorted members, so that equal arguments have equal texts."""
    return msgspec.json.encode(value, order="deterministic").decode()


def declares_validation(schema: str | None) -> bool:
    """Return whether an input schema has a validation's parameters: a tool and its arguments."""
    value = json_value(schema)
    properties = value.get("properties") if isinstance(value, dict) else None
    if not isinstance(properties, dict):
        return False
    return "tool" in properties and bool(properties.keys() & {"arguments", "parameters"})


def schema_differences(schema: str | None) -> list[str]:
    """Return how a validate tool's input schema differs from the protocol's schema."""
    value = json_value(schema)
    if not isinstance(value, dict):
        return ["inputSchema is not an object"]
    properties = value.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = value.get("required")
    required = required if isinstance(required, list) else []
    found = []
    for name, kind in (("tool", "string"), ("arguments", "object")):
        inner = properties.get(name)
        if not isinstance(inner, dict):
            found.append(f"{name} is not declared")
        elif inner.get("type") != kind:
            found.append(f"{name} is not of type {kind}")
        elif name not in required:
            found.append(f"{name} is not required")
    return found


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list) else ()
