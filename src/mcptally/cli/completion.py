"""Shell completion of questions, and of the names of servers, tools, clients and models."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from mcptally.errors import McptallyError

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_LARGEST: Final = 64 << 20
"""Bytes of a store's calls above which names are not read, because that takes too long."""


def questions(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The predefined questions, with what they answer."""
    from mcptally.analytics.views import question_titles

    return [
        CompletionItem(name, help=title)
        for name, title in question_titles().items()
        if name.startswith(incomplete)
    ]


def names(column: str) -> Completer:
    """A completer of the values of a column of `calls`, in the store that the command names.

    `--tool` offers the tools of the server that `--server` names, if it does.
    """

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given = _given(ctx)
        folder = given.get("store")
        if not folder:
            return []
        server = given.get("server") if column == "tool" else None
        # The shell shows no errors: without names there is nothing to offer.
        with contextlib.suppress(McptallyError, OSError, ValueError):
            found = _values(Path(folder), column, server)
            return [CompletionItem(name) for name in found if name.startswith(incomplete)]
        return []

    return complete


def _given(ctx: click.Context) -> dict[str, Any]:
    """The parameters of a command line that ends with the name of an option.

    Click parses nothing of a line whose last option has no value yet.
    """
    if ctx.parent is None or not ctx.parent.args:
        return ctx.params
    words = list(ctx.parent.args[:-1])
    return ctx.command.make_context(
        ctx.info_name, words, parent=ctx.parent, resilient_parsing=True
    ).params


def _values(folder: Path, column: str, server: Any) -> list[str]:
    import polars as pl

    from mcptally.redaction.display import clean_line, mask_text
    from mcptally.store.manifest import live_files, read_manifest

    files = live_files(folder, read_manifest(folder, archive=False))["calls"]
    if sum(path.stat().st_size for path in files) > _LARGEST:
        return []
    calls = pl.read_parquet(files, columns=list({column, "server"}), glob=False)
    if server:
        calls = calls.filter(server=server)
    values = calls.get_column(column).drop_nulls().unique().to_list()
    # A name that the shell would change, or that holds a secret, is not offered.
    return sorted(name for name in values if name == clean_line(mask_text(name)))
