"""The command line: one verb, one library call of the same name and arguments.

Results go to stdout, talk to stderr. A command's module is imported when the command runs, so
that `record`, which sits in front of every server a client starts, never pays for the others.
"""

import importlib
import os
import sys
from typing import Final

import click

from mcptally.errors import Exit, McptallyError, QueryError, UnreadableError, near

COMMANDS: Final[dict[str, str]] = {
    "score": "Validate and score recorded traffic into a store.",
    "query": "Ask a store a standing question by name, or any SQL.",
    "record": "Run an MCP server behind the recorder.",
    "wrap": "Put the recorder before the servers of a client's configuration.",
    "import": "Turn other people's logs into transcripts.",
    "check": "Say whether an archive is whole.",
    "redact": "Apply a redaction policy to recordings that exist.",
    "merge": "Put several stores into one.",
    "forget": "Remove data from a store and its transcripts.",
    "export": "Write a store in other people's formats.",
    "show": "Explain one call: request, reply, and every rule that decided.",
    "compare": "Say what got worse between two stores.",
    "report": "Write one self-contained page.",
    "validate": "Dry-run a call: {valid, errors, warnings}.",
    "serve": "Serve a store over MCP (stdio).",
    "rules": "Print the rules, from the rules themselves.",
    "evaluate": "Measure the verdict on a labelled file.",
    "doctor": "Check the environment.",
}
"""Every command and its one-line help. The command's module has the same name, and `import`'s
is `import_`."""


def _module(name: str) -> str:
    return f"mcptally.cli.{name}_" if name == "import" else f"mcptally.cli.{name}"


class _Lazy(click.Group):
    """A group whose commands are imported when they are used; `--help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(_module(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        # (A shell that completes a line asks, too, and wants no answer here.)
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"no command is called {name!r}{near(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        words = [*getattr(ctx, "_protected_args", ()), *ctx.args]  # click forgets them
        # click would turn a closed pipe into exit 1 by itself.
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our stdout has what it wanted (`| head`): that is no error.
            _stdout_is_gone()
            ctx.exit(Exit.DONE)
        except (KeyboardInterrupt, RuntimeError) as error:
            # DuckDB says in its own way that Ctrl-C stopped a query.
            if isinstance(error, RuntimeError) and str(error) != "Query interrupted":
                raise
            sys.stderr.write("mcptally: interrupted\n")
            ctx.exit(Exit.INTERRUPTED)
        except OSError as error:
            _stdout_is_gone()  # it may be what could not be written
            where = f"{error.filename}: " if error.filename else ""
            raise UnreadableError(f"{where}{error.strerror or error}") from error
        except Exception as error:
            cause = error.__cause__ if isinstance(error, QueryError) else error
            if cause is None or not _is_of_a_reader(cause):
                raise
            from mcptally.pipeline.fingerprint import refuse_damaged

            refuse_damaged(words)
            raise

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


_READERS: Final = frozenset({"duckdb", "_duckdb", "polars", "pyarrow"})
"""Packages that read the files of a store; not imported for this: `record` must not pay for it."""

_OWN_WORDS: Final = frozenset({"Parser", "Syntax", "Binder", "Catalog", "Conversion", "OutOfRange"})
"""Errors of DuckDB that a query has by itself, whatever it reads."""


def _is_of_a_reader(error: BaseException) -> bool:
    """Whether a file that cannot be read may be why."""
    kind = type(error)
    return (
        kind.__module__.partition(".")[0] in _READERS
        and kind.__name__.removesuffix("Exception") not in _OWN_WORDS
    )


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mcptally")
def cli() -> None:
    """Find out which MCP tools and servers can be trusted.

    \b
    Record a server:   mcptally record --out traces -- npx -y some-mcp-server
    Score an archive:  mcptally score traces -o store
    Ask a question:    mcptally query store tool_scores
    """


def main() -> None:
    """Run the command line; every expected error is one sentence on stderr and an exit code."""
    code = Exit.DONE
    try:
        cli(standalone_mode=True, prog_name="mcptally")
    except McptallyError as error:
        from mcptally.redaction.display import as_message  # it may quote what was recorded

        sys.stderr.write(f"mcptally: {as_message(str(error))}\n")
        code = error.exit_code
    except BrokenPipeError:
        _stdout_is_gone()
    # Out here: what the error held (a store that is open, say) is let go of before the end.
    sys.exit(code)


def _stdout_is_gone() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not fail at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
