"""Defines the arguments and options that several commands share."""

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from mcptally.cli.quantity import SECONDS
from mcptally.errors import Exit, UsageError

if TYPE_CHECKING:
    from mcptally.gates.limits import Gate, Result
    from mcptally.transcript.unread import Unread


def require_mcp_2(command: str) -> None:
    """Raise an error unless version 2 of the package `mcp` is installed; agents often pin 1.

    Raises:
        UsageError: `mcp` is older than version 2.
    """
    version = importlib.metadata.version("mcp")
    if int(version.partition(".")[0]) < 2:
        raise UsageError(
            f"`mcptally {command}` needs mcp 2.3 or newer, and mcp {version} is installed; run it "
            f"in another environment, for example: uvx mcptally {command}"
        )


def explain_terminal_on_stdin() -> None:
    """Say what a server on stdio waits for, if its stdin is a terminal and not a client."""
    if sys.stdin.isatty():
        sys.stderr.write(
            "waiting for an MCP client on stdin, which is a terminal; configure this command in a "
            "client, or press Ctrl-C to stop\n"
        )


class FormatChoice(click.Choice[str]):
    """An option for an output format. The error for another command's format names that command."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format's name, or reject the value with a helpful message."""
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

PATH: Final = click.Path(path_type=Path)
STORE: Final = click.argument("store", type=PATH)
RAW: Final = click.option("--raw", is_flag=True, help="Do not mask tokens and passwords.")
TABLE_OR_JSON: Final = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="Output format."
)
REVIEWS: Final = click.option(
    "--reviews",
    type=PATH,
    help="The answers of mcptally review. Default: reviews.jsonl in the folder of the archive.",
)

SERVER: Final = click.option("--server", metavar="NAME", help="Only this server.")
TOOL: Final = click.option("--tool", metavar="NAME", help="Only this tool.")
SINCE: Final = click.option(
    "--since",
    metavar="WHEN",
    help="Only calls made at this time or later: 2026-11-21, 7d, 24h.",
)
UNTIL: Final = click.option("--until", metavar="WHEN", help="Only calls made before this time.")
REVIEWER: Final = click.option(
    "--as", "who", metavar="NAME", help="Name of the reviewer. Default: the user's."
)
ANSWER_SECONDS: Final = click.option(
    "--seconds", type=SECONDS, default=20.0, show_default=True, help="Time limit for an answer."
)


def call_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--server`, `--tool`, `--since`, `--until`, `--client` and `--model`."""
    return _with(
        command,
        *(SERVER, TOOL, SINCE, UNTIL),
        click.option("--client", metavar="NAME", help="Only calls by this client."),
        click.option(
            "--model", metavar="NAME", help="Only calls that this language model asked for."
        ),
    )


class Gates(NamedTuple):
    """The gate options of a command: the conditions, and the report files to write."""

    fail_on: tuple[str, ...]
    undecided: bool
    """Whether undecided results count as failures."""
    junit: Path | None
    sarif: Path | None

    def load(self, *, comparing: bool = False) -> "list[Gate]":
        """Load the gates with `limits.load`.

        Raises:
            UsageError: a gate is invalid, or another gate option is given without a gate.
        """
        if self.undecided and not self.fail_on:
            raise UsageError("--fail-on-undecided needs --fail-on, the gates that it is about")
        if (self.junit or self.sarif) and not self.fail_on:
            raise UsageError("--junit and --sarif need --fail-on, whose results they write")
        if not self.fail_on:
            return []
        from mcptally.gates import limits

        return limits.load(self.fail_on, comparing=comparing)

    def report(self, ctx: click.Context, results: "Sequence[Result]") -> None:
        """Write the results to the report files and to stderr; exit with 1 if a gate failed.

        Raises:
            UsageError: a file cannot be written.
        """
        from mcptally.gates import ci_reports

        if self.undecided:
            results = [result.failed_if_undecided() for result in results]
        ci_reports.write_reports(results, junit=self.junit, sarif=self.sarif)
        sys.stderr.write("".join(f"{line}\n" for line in ci_reports.lines(results)))
        if any(result.state == "failed" for result in results):
            ctx.exit(Exit.FAILED)


def gate_options(examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add `--fail-on`, `--fail-on-undecided`, `--junit` and `--sarif`, passed as `gates: Gates`.

    Args:
        examples: examples of gate conditions, for the help text.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_gates(
            *args: Any,
            fail_on: tuple[str, ...],
            fail_on_undecided: bool,
            junit: Path | None,
            sarif: Path | None,
            **options: Any,
        ) -> None:
            command(*args, gates=Gates(fail_on, fail_on_undecided, junit, sarif), **options)

        return _with(
            with_gates,
            click.option(
                "--fail-on",
                multiple=True,
                metavar="GATE",
                help=f"Exit with 1 if this is true{examples}, or a TOML file of gates. Can be "
                "repeated.",
            ),
            click.option(
                "--fail-on-undecided",
                is_flag=True,
                help="Also exit with 1 if a gate is undecided because of too little data.",
            ),
            click.option("--junit", type=PATH, help="Write the results of gates as JUnit XML."),
            click.option("--sarif", type=PATH, help="Write the results of gates as SARIF."),
        )

    return decorate


def _with(command: Callable[..., None], *options: Decorator) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def say(text: str, *, prefix: str = "") -> None:
    """Print a prefix and a text to stderr; mask secrets and control characters in the text."""
    from mcptally.redaction.display import as_message

    sys.stderr.write(f"{prefix}{as_message(text)}\n")


def write_json(value: object) -> None:
    """Print a value to stdout as indented JSON with control characters escaped."""
    import json

    from mcptally.redaction.display import escape_controls

    text = json.dumps(value, default=str, indent=1, ensure_ascii=False)
    sys.stdout.write(f"{escape_controls(text)}\n")


def write_unread(unread: "Unread | None") -> None:
    """Print to stderr which parts of an archive could not be read, if any."""
    from mcptally.transcript.unread import in_words

    for line in in_words(unread):
        say(line)
