"""What a secret value looks like by itself, and how it differs from a word."""

import re
from typing import Final


def token_like(value: bytes) -> bool:
    """Eight characters or more that are no plain word: digits and letters, or cases mixed."""
    if len(value) < 8:
        return _SHORT_SECRET.fullmatch(value) is not None
    return (_DIGIT.search(value) is not None and _LETTER.search(value) is not None) or (
        _INNER_CASE.search(value) is not None or value.endswith(b"=")
    )


_DIGIT: Final = re.compile(rb"[0-9]")
_LETTER: Final = re.compile(rb"[A-Za-z]")
_INNER_CASE: Final = re.compile(
    rb"[a-z][A-Z].{0,40}[a-z][A-Z]|[A-Za-z][!@#$%^*+~][A-Za-z!@#$%^*+~]"
)
_SHORT_SECRET: Final = re.compile(rb"(?=.{0,7}[0-9])(?=.{0,7}[A-Za-z])[\x21-\x7e]{5,7}")


def base64_like(value: bytes) -> bool:
    """Base64 by length and by what stands in it, rather than a word after `Basic`."""
    return len(value) % 4 == 0 and (value.endswith(b"=") or token_like(value))


def random_like(value: bytes) -> bool:
    """No path, no name: digits and letters change places too often for a word."""
    changes = len(_CHANGE.findall(value))
    return changes * 6 >= len(value) and b"//" not in value and value.count(b"/") * 12 <= len(value)


_CHANGE: Final = re.compile(rb"(?=[A-Za-z][0-9]|[0-9][A-Za-z]|[a-z][A-Z])")


def luhn(value: bytes) -> bool:
    """The check digit of ISO/IEC 7812-1 holds."""
    digits = [c - 48 for c in value if 48 <= c <= 57]
    if not 13 <= len(digits) <= 19:
        return False
    odd, even = digits[-1::-2], digits[-2::-2]
    return (sum(odd) + sum(sum(divmod(2 * d, 10)) for d in even)) % 10 == 0


CHECKS: Final = {
    "token_like": token_like,
    "base64_like": base64_like,
    "random_like": random_like,
    "luhn": luhn,
}
"""The checks that a `Shape` may name."""

REACH: Final = {
    "bearer": (0, 64),
    "basic": (0, 64),
    "url-password": (0, 512),
    "telegram-token": (16, 64),
    "account-key": (256, 64),
    "azure-client-secret": (3, 48),
    "terraform-token": (14, 96),
    "mailchimp-key": (32, 8),
}
"""Where a match lies around its needle: it begins at most so many bytes before the needle, and so
many from there on are more than the shortest match takes. Other shapes are looked for everywhere.
"""
