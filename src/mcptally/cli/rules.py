"""The command `mcptally rules`: prints the rules for findings, verdicts and scores."""

import json
import sys

import click

FORMATS = ("table", "json", "markdown")


@click.command(name="rules")
@click.argument("rule", required=False, metavar="[ID]")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", help="Output format."
)
def command(rule: str | None, form: str) -> None:
    """Print the rules for findings, verdicts and scores.

    If ID is the id of a rule, the command prints the whole rule with its examples. If ID is the
    beginning of ids, such as protocol or verdict.context, the command lists the rules of that
    group. Without ID, it lists all rules. A list shows the severity of a finding, or why a rule
    that no labelled call needs is kept.

    \b
    Examples:
      mcptally rules
      mcptally rules protocol
      mcptally rules definition.hidden_instruction
      mcptally rules --format json | jq '.[] | select(.severity == "error") | .id'
    """
    from mcptally.rules.reference_page import find_rules, format_rule, render_reference_page

    rows = find_rules(rule)
    if form == "json":
        sys.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False, default=str) + "\n")
    elif form == "markdown" and rule is None:
        sys.stdout.write(render_reference_page())
    elif form == "markdown":
        for row in rows:
            sys.stdout.write(f"## `{row['id']}`\n\n```text\n{format_rule(row)}```\n\n")
    elif len(rows) == 1:
        sys.stdout.write(format_rule(rows[0]))
    else:
        marks = [row.get("severity", row.get("kept_for", "")) for row in rows]
        width = max(len(row["id"]) for row in rows)
        mark_width = max(map(len, marks))
        for row, mark in zip(rows, marks, strict=True):
            sys.stdout.write(f"{row['id']:<{width}}  {mark:<{mark_width}}  {row['title']}\n")
