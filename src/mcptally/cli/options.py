"""Defines the options that several commands share: filters, gate reports and `--raw`."""

import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcptally.errors import Exit, UsageError

if TYPE_CHECKING:
    from mcptally.gates.limits import Result
    from mcptally.transcript.unread import Unread


def require_mcp_2(command: str) -> None:
    """Reject a command that needs version 2 of the package `mcp`; agents often pin version 1.

    Raises:
        UsageError: an older version is installed.
    """
    version = importlib.metadata.version("mcp")
    if int(version.partition(".")[0]) < 2:
        raise UsageError(
            f"`mcptally {command}` needs mcp 2.3 or newer, and mcp {version} is installed; run it "
            f"in another environment, for example: uvx mcptally {command}"
        )


class FormatChoice(click.Choice[str]):
    """An output format; the error for a format of another command names that command."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format's name."""
        if value not in self.choices:
            from mcptally.output.formats import ANSWERS, EXPORTS

            if value in ANSWERS:
                self.fail(f"only query and compare write {value!r}, with --format", param, ctx)
            if value in EXPORTS:
                self.fail(
                    f"{value!r} is written by: mcptally export STORE --to {value}", param, ctx
                )
        return super().convert(value, param, ctx)


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def call_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--server`, `--tool`, `--since`, `--until`, `--client` and `--model`."""
    return _with(
        command,
        click.option("--server", metavar="NAME", help="Only this server."),
        click.option("--tool", metavar="NAME", help="Only this tool."),
        click.option(
            "--since",
            metavar="WHEN",
            help="Only calls made at this time or later: 2026-11-21, 7d, 24h.",
        ),
        click.option("--until", metavar="WHEN", help="Only calls made before this time."),
        click.option("--client", metavar="NAME", help="Only calls by this client."),
        click.option(
            "--model",
            metavar="NAME",
            help="Only calls that this language model asked for.",
        ),
    )


def gate_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--fail-on-undecided`, `--junit` and `--sarif`, which need `--fail-on`."""
    path = click.Path(path_type=Path)
    return _with(
        command,
        click.option(
            "--fail-on-undecided",
            is_flag=True,
            help="Also exit with 1 if a gate is undecided because of too little data.",
        ),
        click.option("--junit", type=path, help="Write the results of gates as JUnit XML."),
        click.option("--sarif", type=path, help="Write the results of gates as SARIF."),
    )


def raw(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--raw`, which turns off the masking of secrets."""
    return _with(
        command,
        click.option("--raw", is_flag=True, help="Do not mask tokens and passwords."),
    )


def _with(command: Callable[..., None], *options: Decorator) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def require_gates(
    fail_on: Sequence[str], junit: Path | None, sarif: Path | None, *, fail_on_undecided: bool
) -> None:
    """Reject gate options without `--fail-on`.

    Raises:
        UsageError: another gate option is given without `--fail-on`.
    """
    if fail_on_undecided and not fail_on:
        raise UsageError("--fail-on-undecided needs --fail-on, the gates that it is about")
    if (junit or sarif) and not fail_on:
        raise UsageError("--junit and --sarif need --fail-on, whose results they write")


def write_gate_reports(
    ctx: click.Context,
    results: "Sequence[Result]",
    junit: Path | None,
    sarif: Path | None,
    *,
    fail_on_undecided: bool,
) -> None:
    """Write the results of gates to stderr and to reports; exit with 1 if a gate failed.

    Args:
        ctx: context of the command.
        results: the results of the gates.
        junit: path of the JUnit XML report.
        sarif: path of the SARIF report.
        fail_on_undecided: whether undecided results count as failures.

    Raises:
        UsageError: a file cannot be written.
    """
    from mcptally.gates import ci_reports

    if fail_on_undecided:
        results = [result.failed_if_undecided() for result in results]
    ci_reports.write_reports(results, junit=junit, sarif=sarif)
    sys.stderr.write("".join(f"{line}\n" for line in ci_reports.lines(results)))
    if any(result.state == "failed" for result in results):
        ctx.exit(Exit.FAILED)


def write_unread(unread: "Unread | None") -> None:
    """Print on stderr which parts of an archive could not be read, if any."""
    from mcptally.redaction.display import as_message
    from mcptally.transcript.unread import in_words

    for line in in_words(unread):
        sys.stderr.write(f"{as_message(line)}\n")
