"""Implements JavaScript's rules for strings, numbers and truthiness, for the seed programs.

The original programs run in a JavaScript engine. The functions in this module reproduce the
engine's differences from Python and polars, which docs/reference/seed-documents.md lists.
"""

import json
import math
import sys
from decimal import Decimal
from typing import Any, Final

from mcptally.wire.nesting import is_too_deep

SPACE: Final = "\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
r"""The characters that JavaScript's `\s` matches, for use in a character class of `re` or Rust.

`\s` itself differs: in Python it also matches U+001C to U+001F and U+0085, but not U+FEFF; in Rust
it also matches U+0085, but not U+FEFF."""

MISSING: Final = object()
"""Represents JavaScript's `undefined`, the value of a missing member, as opposed to null."""

_EXACT: Final = 2**53
_LONGEST_INDEX: Final = 2**32 - 1


class Throws(Exception):  # noqa: N818 - an expected result of the original program
    """Raised where the original program throws; it has the JavaScript engine's message."""


def parse(text: str) -> Any:
    """Parse a string like JavaScript's `JSON.parse`.

    Raises:
        ValueError: the string is not JSON; NaN and Infinity, which Python accepts, are not JSON.
        RecursionError: the string is nested deeper than `nesting.MAX_DEPTH`.
    """
    if is_too_deep(text):
        raise RecursionError("nested too deep")
    return json.loads(text, parse_constant=_no_constant, parse_int=_number)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _number(digits: str) -> int | float:
    # JavaScript rounds long integers to a double. float() also accepts more than 4300 digits,
    # which int() rejects.
    if len(digits) < 16:
        return int(digits) if digits != "-0" else -0.0
    value = float(digits)
    return int(value) if abs(value) <= _EXACT else value


def truthy(value: Any) -> bool:
    """Return whether JavaScript treats a value as truthy.

    Empty arrays and objects are truthy; "", 0 and NaN are not.
    """
    if isinstance(value, list | dict):
        return True
    if isinstance(value, float) and math.isnan(value):
        return False
    return value is not MISSING and bool(value)


def member(value: Any, name: str) -> Any:
    """Return JavaScript's `value?.name` for a name that no built-in prototype has."""
    return value.get(name, MISSING) if isinstance(value, dict) else MISSING


def first(value: Any) -> Any:
    """Return JavaScript's `value?.[0]` for an array, a string, or an object with a member "0"."""
    if isinstance(value, list | str):
        return value[0] if value else MISSING
    return member(value, "0")


def cut(text: str, units: int) -> str:
    """Return JavaScript's `text.substring(0, units)`, which counts UTF-16 code units.

    The result may end in a lone surrogate.
    """
    if len(text) <= units // 2:
        return text
    raw = text[:units].encode("utf-16-le", "surrogatepass")[: 2 * units]
    return raw.decode("utf-16-le", "surrogatepass")


def printable(text: str) -> str:
    """Replace lone surrogates in a string with U+FFFD, so that it can be encoded as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def divided(above: float, below: float) -> float:
    """Return `above / below` as JavaScript does, without an exception: 0/0 is NaN, 1/0 Infinity."""
    if below:
        return above / below
    return math.nan if not above or math.isnan(above) else math.copysign(math.inf, above)


def at_most(limit: float, value: float) -> float:
    """Return JavaScript's `Math.min(limit, value)`, in which NaN stays NaN."""
    return value if math.isnan(value) else min(limit, value)


def rounded(value: float) -> float:
    """Return JavaScript's `Math.round(value)`, which rounds halves up."""
    return math.floor(value + 0.5) if math.isfinite(value) else value


def number(value: float) -> str:
    """Return JavaScript's `String(value)` for a number: the shortest digits that identify it."""
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(value)
    try:
        value = float(value)
    except OverflowError:
        value = math.copysign(math.inf, value)
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0:
        return "0"
    # repr() returns the same digits as the ECMAScript algorithm, in a different notation.
    sign, figures, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, figures))
    point = len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 0 < point <= 21:
        whole = digits[:point].ljust(point, "0")
        rest = digits[point:]
        return f"{minus}{whole}.{rest}" if rest else minus + whole
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{minus}{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def stringify(value: Any) -> str:
    """Return JavaScript's `JSON.stringify(value)` for a value parsed from JSON."""
    if isinstance(value, list):
        return f"[{','.join([stringify(item) for item in value])}]"
    if isinstance(value, dict):
        members = [f"{_quote(name)}:{stringify(value[name])}" for name in _ordered(value)]
        return f"{{{','.join(members)}}}"
    if isinstance(value, str):
        return _quote(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = number(value)
    return "null" if text.endswith(("NaN", "Infinity")) else text


def _ordered(item: dict[str, Any]) -> list[str]:
    """Return member names in JavaScript's order: ascending array indices, then all other names."""
    if not any(_is_index(key) for key in item):
        return list(item)
    indices = sorted((key for key in item if _is_index(key)), key=int)
    return indices + [key for key in item if not _is_index(key)]


def _is_index(key: str) -> bool:
    if not (key.isascii() and key.isdigit() and len(key) <= 10):
        return False
    return (key == "0" or key[0] != "0") and int(key) < _LONGEST_INDEX


def _quote(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    if text.isascii():
        return quoted
    # Outside ASCII, JSON.stringify escapes lone surrogates and no other characters.
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in quoted)


def judgeable(value: Any) -> Any:
    """Replace infinities and lone surrogates in a value, because jsonschema-rs rejects them.

    JavaScript parses 1e400 as Infinity. Infinity becomes the greatest double, and a lone surrogate
    becomes U+FFFD; neither change affects whether a value is valid.
    """
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return _replaced(value)
    return value


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and math.isinf(value):
        return math.copysign(sys.float_info.max, value)
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): _replaced(item) for key, item in value.items()}
    return value
