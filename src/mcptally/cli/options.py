"""Options that several commands take: which calls, where gates are written, secrets or not."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcptally.errors import Exit, UsageError

if TYPE_CHECKING:
    from mcptally.gates.limits import Result

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def of_calls(command: Callable[..., None]) -> Callable[..., None]:
    """`--server`, `--tool`, `--since`, `--until` and `--client`: the calls that an answer is of."""
    return _with(
        command,
        click.option("--server", metavar="NAME", help="Of this server."),
        click.option("--tool", metavar="NAME", help="Of this tool."),
        click.option(
            "--since", metavar="WHEN", help="Calls made then or later: 2026-11-21, 7d, 24h."
        ),
        click.option("--until", metavar="WHEN", help="Calls made before then."),
        click.option("--client", metavar="NAME", help="Calls of this client."),
    )


def of_gates(command: Callable[..., None]) -> Callable[..., None]:
    """`--junit` and `--sarif`: files that say what `--fail-on` found."""
    path = click.Path(path_type=Path)
    return _with(
        command,
        click.option("--junit", type=path, help="Write the gates as JUnit XML."),
        click.option("--sarif", type=path, help="Write the gates as SARIF."),
    )


def raw(command: Callable[..., None]) -> Callable[..., None]:
    """`--raw`: secrets as they were recorded."""
    return _with(
        command,
        click.option(
            "--raw", is_flag=True, help="Write tokens and passwords as they were recorded."
        ),
    )


def _with(command: Callable[..., None], *options: Decorator) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def require_gates(fail_on: Sequence[str], junit: Path | None, sarif: Path | None) -> None:
    """Refuse files about gates where there are none.

    Raises:
        UsageError: a file is named, and no gate.
    """
    if (junit or sarif) and not fail_on:
        raise UsageError("--junit and --sarif write what --fail-on found; give --fail-on as well")


def write_gate_reports(
    ctx: click.Context, results: "Sequence[Result]", junit: Path | None, sarif: Path | None
) -> None:
    """Write what gates found to the files and to stderr; exit with 1 where one has failed.

    Raises:
        UsageError: a file cannot be written.
    """
    from mcptally.gates import ci_reports

    ci_reports.write(results, junit=junit, sarif=sarif)
    sys.stderr.write("".join(f"{line}\n" for line in ci_reports.lines(results)))
    if any(result.state == "failed" for result in results):
        ctx.exit(Exit.FAILED)
