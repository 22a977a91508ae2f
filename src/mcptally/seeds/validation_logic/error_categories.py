"""Loads the error categories of the validation-logic document from `categories.toml`."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mcptally.toml_files import read_toml


class Category(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A category of errors; `categories.toml` explains the fields."""

    name: str
    http: int
    code: str
    hint: str
    retryable: bool = False
    statuses: tuple[int, ...] = ()
    named: str


CATEGORIES: Final[Mapping[str, Category]] = {
    row.name: row
    for row in msgspec.convert(read_toml("seeds/categories.toml")["category"], list[Category])
}
"""The categories, in the order in which their patterns are tried."""

_STATUS: Final = {status: row.name for row in CATEGORIES.values() for status in row.statuses}


def category_of_status(status: int) -> str:
    """Return the category to which an HTTP status of 400 or higher belongs."""
    return _STATUS.get(status) or ("upstream" if status >= 500 else "validation")


def category_named(name: Any) -> str | None:
    """Return the category that another server's category or code name stands for, if known."""
    if not isinstance(name, str):
        return None
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s.:-]+", "_", name).lower()
    if snake in CATEGORIES:
        return snake
    return next((row.name for row in CATEGORIES.values() if re.search(row.named, snake)), None)
