"""Distinguishes secrets from ordinary words by their characters alone, without context."""

import re
from typing import Final


def token_like(value: bytes) -> bool:
    """Return whether the value mixes letters and digits, or mixes cases.

    It must have at least 5 characters to mix letters and digits, and at least 8 to mix cases.
    """
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
    """Return whether length and content suggest base64, not an ordinary word after `Basic`."""
    return len(value) % 4 == 0 and (value.endswith(b"=") or token_like(value))


def random_like(value: bytes) -> bool:
    """Return whether letters, digits and cases alternate more often than in words and paths."""
    changes = len(_CHANGE.findall(value))
    return changes * 6 >= len(value) and b"//" not in value and value.count(b"/") * 12 <= len(value)


_CHANGE: Final = re.compile(rb"(?=[A-Za-z][0-9]|[0-9][A-Za-z]|[a-z][A-Z])")


def luhn(value: bytes) -> bool:
    """Return whether 13 to 19 digits have a correct check digit (Luhn, ISO/IEC 7812-1)."""
    digits = [c - 48 for c in value if 48 <= c <= 57]
    if not 13 <= len(digits) <= 19:
        return False
    odd, even = digits[-1::-2], digits[-2::-2]
    return (sum(odd) + sum(sum(divmod(2 * d, 10)) for d in even)) % 10 == 0


def not_a_placeholder(value: bytes) -> bool:
    """Return whether the value is not a variable, a template, an example word or an address."""
    return _PLACEHOLDER.match(value) is None


_PLACEHOLDER: Final = re.compile(
    rb"(?i)[$<\[{%(*/]|(?:x+|\.+|pass(?:word|wd)?|pwd|pw|token|secret|test|change(?:it|me)|prompt"
    rb"|your[_-].*|my[_-]?(?:password|pass)|yyy)\Z"
)


def password_like(value: bytes) -> bool:
    """Return whether a word looks like a password, not a date, version, number or file name."""
    return (
        token_like(value)
        and not _NOT_A_PASSWORD.fullmatch(value)
        and not_a_placeholder(value)
        and b"://" not in value
    )


_NOT_A_PASSWORD: Final = re.compile(
    rb"(?i)[\d.,:/+-]*(?:st|nd|rd|th|s|ms|h|d|days?|hours?|min|chars?|bits?|z)?|v\d[\w.-]*"
    rb"|\d{4}-\d\d-\d\dt[\d:.z+-]*|[\w.+-]+@[\w.-]+|[a-z_]+\(.*|(?:sha|md|base|utf|aes|rsa|bcrypt|argon)-?\d.*"
    rb"|[\w./-]+\.(?:py|js|ts|json|ya?ml|toml|txt|md|env|cfg|ini|html?|go|rs|java)|\w+[=&].*"
)
"""Matches values that are not passwords: measures, versions, times, addresses, calls, files."""


def key_like(value: bytes) -> bool:
    """Return whether a value in an error message looks random, not like a name with a number."""
    return (
        random_like(value)
        and _DIGIT.search(value) is not None
        and _LETTER.search(value) is not None
        and not _NOT_A_PASSWORD.fullmatch(value)
    )


CHECKS: Final = {
    "password_like": password_like,
    "key_like": key_like,
    "not_a_placeholder": not_a_placeholder,
    "token_like": token_like,
    "base64_like": base64_like,
    "random_like": random_like,
    "luhn": luhn,
}
"""Maps names in `SecretPattern.check` to checks."""

MATCH_REACH: Final = {
    "prose-password": (0, 160),
    "password-key": (0, 64),
    "one-time-code": (16, 64),
    "rejected-key": (16, 96),
    "piped-password": (360, 16),
    "option-password": (2, 480),
    "path-key": (0, 64),
    "bearer": (0, 64),
    "basic": (0, 64),
    "url-password": (0, 512),
    "telegram-token": (16, 64),
    "account-key": (256, 64),
    "command-password": (32, 480),
    "netrc": (300, 64),
    "azure-client-secret": (3, 48),
    "terraform-token": (14, 96),
    "mailchimp-key": (32, 8),
}
"""Maps names of `SecretPattern` to `before` and `after` of `scanner.matches_near`.

Patterns without an entry are searched in the whole frame."""
