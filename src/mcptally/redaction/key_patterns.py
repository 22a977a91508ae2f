"""Defines the names that mark a value as secret, as rules and tables of words.

`secret_patterns` defines the secrets that are recognised by their form. The rows are in
`secrets.toml`.
"""

from typing import Final

import msgspec

from mcptally.redaction.secret_patterns import DEFAULT, SECRETS


class NameRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule by which the *name* beside a value marks the value as secret.

    The fields are those of `secret_patterns.SecretPattern`; the names are in the tables below.
    """

    name: str
    title: str
    source: str = "mcptally"
    on: frozenset[str] = DEFAULT
    fires: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set; whitespace separates them."""
    return frozenset(text.split())


NAME_RULES: Final = msgspec.convert(SECRETS["named"], tuple[NameRule, ...])

_WORDS: Final = {name: words(text) for name, text in SECRETS["words"].items()}

WORDS_BEFORE_HARMLESS_TOKEN: Final = _WORDS["words_before_harmless_token"]
"""Words before `token` that mean a cursor, a language model's token or a coin, not a secret."""

VERBS_OF_SETTINGS: Final = _WORDS["verbs_of_settings"]
"""First words of names of settings, such as `stripCredentials`: the other words do not name a
value."""

WORDS_BEFORE_KEY: Final = _WORDS["words_before_key"]
"""Words before `key` that mean a credential; `key` alone does not."""

WORDS_BEFORE_RANDOM_KEY: Final = _WORDS["words_before_random_key"]
"""Words before `key` that mean a credential if the value looks random, else a plain identifier."""

WORDS_BEFORE_HARMLESS_KEY: Final = _WORDS["words_before_harmless_key"]
"""Words before `key` in capitals (`CACHE_KEY`) that never mean a credential."""

SECRET_NAMES: Final[dict[str, str]] = {
    word: label for label, names in SECRETS["secret_names"].items() for word in names.split()
}
"""Key name, in lower case and without separators → kind of secret."""
