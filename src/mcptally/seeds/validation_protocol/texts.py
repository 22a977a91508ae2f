"""What one dry run asks, what its answer says, and how deep its words look: JSON text by JSON text.

Texts are strangers': whatever they hold, an answer is read as far as it is one.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from mcptally import rules as rule_files
from mcptally.seeds.validation_logic.arguments import first_given
from mcptally.seeds.violation import Violation
from mcptally.verdict import match

ANSWER: Final = ("valid", "errors", "warnings")
"""The members of an answer, and all it may have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseRule(rule_files.Rule):
    """Words that show how deep a validation looks."""

    phase: str
    matches: tuple[str, ...]


class Asked(NamedTuple):
    """What a validation is asked to judge."""

    tool: str | None
    arguments: Any
    member: str | None
    """`arguments`, as the document has it, or `parameters`, as the program reads."""


class Answered(NamedTuple):
    """What a validation said."""

    valid: bool | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    breaches: tuple[Violation, ...] = ()


def asked(arguments: str | None) -> Asked:
    """What the arguments of a validation ask for."""
    value = parsed(arguments)
    if not isinstance(value, dict):
        return Asked(None, None, None)
    tool = first_given(value, "tool", "name")
    member = next((name for name in ("arguments", "parameters") if name in value), None)
    return Asked(tool if isinstance(tool, str) else None, value.get(member or ""), member)


def answered(response: str | None) -> Answered:
    """What a validation's result says, and what is wrong with it (codes are ids of rules)."""
    value = parsed(response)
    if not isinstance(value, dict):
        return Answered()
    place, said = _said(value)
    if said is None:
        words = "the answer is no JSON object {valid, errors, warnings}"
        return Answered(breaches=(Violation("/content", words, "validation.answer_shape"),))
    breaches = list(_shape(said, place))
    valid = said.get("valid")
    valid = valid if isinstance(valid, bool) else None
    errors, warnings = (_texts(said.get(name)) for name in ("errors", "warnings"))
    if valid is True and errors:
        words = f"valid, with {len(errors)} errors"
        breaches.append(Violation(place, words, "validation.valid_with_errors", errors[0][:200]))
    if valid is False and not errors:
        words = "invalid, and no error says why"
        breaches.append(Violation(place, words, "validation.invalid_without_errors"))
    if value.get("isError") is True:
        words = "a refusal is an answer, not an error of the tool"
        breaches.append(Violation("/isError", words, "validation.answer_is_error"))
    return Answered(valid, errors, warnings, tuple(breaches))


def _said(result: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """The answer in a result and its place: structured, in a text, or bare (of the method)."""
    inner = result.get("structuredContent")
    if isinstance(inner, dict) and "valid" in inner:
        return "/structuredContent", inner
    content = result.get("content")
    if isinstance(content, str):  # the seed's own listing puts the JSON text here
        content = [{"type": "text", "text": content}]
    for number, block in enumerate(content if isinstance(content, list) else ()):
        value = parsed(block.get("text")) if isinstance(block, dict) else None
        if isinstance(value, dict):
            return f"/content/{number}/text", value
    return "", result if "valid" in result else None


def _shape(said: dict[str, Any], place: str) -> Iterator[Violation]:
    for name in ANSWER:
        value = said.get(name)
        if name == "valid":
            right, kind = isinstance(value, bool), "a boolean"
        else:
            right = isinstance(value, list) and all(isinstance(each, str) for each in value)
            kind = "a list of texts"
        if not right:
            missing = "is missing" if name not in said else f"is not {kind}"
            words, shown = f"{name} {missing}", str(value)[:200]
            yield Violation(f"{place}/{name}", words, "validation.answer_shape", shown)
    if extra := sorted(said.keys() - {*ANSWER}):
        words = f"says more than valid, errors, warnings: {', '.join(extra[:5])}"
        yield Violation(place, words, "validation.answer_extra")


def vague(text: str, given: Any) -> bool:
    """Whether an error names nothing: no value, no quoted thing, no place, no number.

    Naming the parameter is enough where the text says what it must be, not where it only calls it
    invalid: `path is required` helps, `Invalid path` does not.
    """
    text = text[:_VAGUE_CHARS]  # a longer one says something, or nothing that anyone reads
    if _NAMES.search(text):
        return False
    members = given if isinstance(given, dict) else {}
    low = text.lower()
    for name, value in members.items():
        if isinstance(value, str) and len(value) > 1 and value.lower() in low:
            return False
        if name.lower() in low and _SAYS.search(text):
            return False
    return _MISSING.search(text) is None


_VAGUE_CHARS: Final = 1000
_NAMES: Final = re.compile(r"""["'`][^"'`]+["'`]|[/\\]\w|\w://|\d|\w_\w|[:=]\s*\S{2}""")
_SAYS: Final = re.compile(
    r"(?i)\b(?:required|missing|must|should|expected|cannot|not|exceeds?|needs?|too)\b"
)
_MISSING: Final = re.compile(
    r"(?i)\b(?:missing|required|unknown)\b.*\b(?:parameter|argument|tool)\W+\w"
)


@functools.cache
def phases() -> tuple[PhaseRule, ...]:
    """The rows, shallow to deep."""
    return rule_files.load(PhaseRule, "phases.toml")


def phase(texts: Sequence[str]) -> str | None:
    """How deep the words of an answer show a validation to look; None where they show nothing."""
    said = pl.Series(list(texts), dtype=pl.String)
    shown = [
        rule.phase for rule in phases() if said.str.contains(match.pattern(rule.matches)).any()
    ]
    return shown[-1] if shown else None


def canonical(value: Any) -> str:
    """One JSON text for equal arguments: members sorted, numbers as they are."""
    return msgspec.json.encode(value, order="deterministic").decode()


def declares(schema: str | None) -> bool:
    """Whether a schema is that of the protocol, or of its program."""
    value = parsed(schema)
    properties = value.get("properties") if isinstance(value, dict) else None
    if not isinstance(properties, dict):
        return False
    return "tool" in properties and bool(properties.keys() & {"arguments", "parameters"})


def declared(schema: str | None) -> list[str]:
    """What differs between a declared inputSchema of `validate` and the protocol's."""
    value = parsed(schema)
    if not isinstance(value, dict):
        return ["inputSchema is no object"]
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


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list) else ()


def parsed(text: Any) -> Any:
    """The value of a JSON text; None for what is none."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
