"""Decides which results should be XML, based on the server's other results and definitions.

A server's results should be XML if at least one result begins with an XML declaration, and at least
half of the results are XML, with or without a declaration. A tool's results should be XML if its
title or description mentions XML.
"""

import re
from types import MappingProxyType
from typing import Final

import polars as pl

from mcptally.seeds.violation import Violation
from mcptally.tables.queries import run_query
from mcptally.tables.stages import ResultForms, Validated

HEAD: Final = 500
"""Number of characters at the start of a text that are examined to find out whether it is XML."""

_DECLARATION: Final = r"^\s*<\?xml[\s?]"
_ELEMENT: Final = r"^\s*<[A-Za-z_]"
_HTML: Final = r"(?i)^\s*<(?:html|head|body|div|p|span|table|ul|ol|h[1-6]|script|svg)\b"
_INSIDE: Final = "<?xml"

_HEAD: Final = Validated.first_text.col.str.head(HEAD)
_IS_DECLARED: Final = _HEAD.str.contains(_DECLARATION)
_IS_UNDECLARED: Final = (
    (_HEAD.str.contains(_ELEMENT) & ~_HEAD.str.contains(_HTML))
    | _HEAD.str.contains(_INSIDE, literal=True)
) & ~_IS_DECLARED

FORM_COUNTS: Final = MappingProxyType({"xml": _IS_DECLARED, "undeclared_xml": _IS_UNDECLARED})
"""Maps columns of `ResultForms` to conditions: each column counts the results that satisfy one."""


def xml_servers(forms: pl.DataFrame) -> pl.DataFrame:
    """Return the servers whose results should be XML, in the column `server`.

    Args:
        forms: `ResultForms` of all tools of each server; rows may be summed over recordings.
    """
    sums = forms.lazy().group_by("server").agg(pl.col("seen", *FORM_COUNTS).sum())
    is_xml = pl.sum_horizontal(*FORM_COUNTS) * 2 >= ResultForms.seen.col
    return sums.filter((ResultForms.xml.col > 0) & is_xml).select("server").pipe(run_query)


def expectations(calls: pl.DataFrame, definitions: pl.DataFrame, forms: pl.DataFrame) -> pl.Series:
    """Return, for each call, why its result needs an XML declaration that it lacks; else null.

    Args:
        calls: scored calls, with `first_text`.
        definitions: `Definitions` of their tools.
        forms: `ResultForms` of their servers.
    """
    names_xml = pl.concat_str("title", "description", separator=" ", ignore_nulls=True)
    described = definitions.lazy().filter(names_xml.str.contains(r"(?i)\bxml\b"))
    of_tools = described.select("definition").pipe(run_query).to_series().implode()
    rows = calls.lazy().select(
        "server",
        "definition",
        is_undeclared=_IS_UNDECLARED & Validated.outcome.col.is_in(["ok", "hidden_error"]),
    )
    server = xml_servers(forms).with_columns(server_is_xml=pl.lit(value=True))
    rows = rows.join(
        server.lazy(), on="server", how="left", nulls_equal=True, maintain_order="left"
    )
    expected = rows.select(
        pl.when(~pl.col("is_undeclared").fill_null(value=False))
        .then(None)
        .when("server_is_xml")
        .then(pl.lit("other results of the server have one"))
        .when(Validated.definition.col.is_in(of_tools))
        .then(pl.lit("the tool's definition names XML"))
        .alias("expected_xml")
    )
    return expected.pipe(run_query).to_series()


def undeclared(text: str, reason: str, path: str) -> Violation:
    """Return the violation for text without a required XML declaration.

    Args:
        text: the text.
        reason: why a declaration is required.
        path: JSON Pointer of the text in the result.
    """
    what = (
        "XML without a declaration" if re.match(_ELEMENT, text) else "text before the declaration"
    )
    return Violation(path, f"{what}; {reason}", "content.xml_undeclared", text[:80])
