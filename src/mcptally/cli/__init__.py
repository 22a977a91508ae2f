"""Defines mcptally's commands, which parse options and call the library.

May import all other folders; no folder imports this one. There is one module per command; `options`
and `quantity` contain shared code. Results go to stdout, messages to stderr. Each module is
imported only when its command runs, because clients wait for `record` to start.
"""

import codecs
import importlib
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn, TextIO, cast

import click

import mcptally
from mcptally.disk_space import full_place, is_full
from mcptally.errors import (
    NOT_IN_RECORDER,
    Exit,
    McptallyError,
    QueryError,
    UnreadableError,
    UsageError,
    near,
    reason,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

COMMANDS: Final[dict[str, str]] = {
    "overview": "Import and score recordings or logs, and print what matters most.",
    "demo": "Record and score example servers that fail in known ways.",
    "score": "Validate and score recorded traffic, and write a store.",
    "query": "Answer a predefined question, or run SQL on a store.",
    "record": "Run an MCP server and record its traffic.",
    "wrap": "Add the recorder to the servers in a client's configuration.",
    "import": "Convert logs of other programs to transcripts.",
    "check": "Check whether an archive is complete.",
    "redact": "Copy recordings with their secrets replaced.",
    "merge": "Merge several stores into one.",
    "export": "Export a store as OTLP, HAR, CSV, Parquet or JSON Lines.",
    "show": "Explain a call: request, reply, and evidence for its verdict.",
    "repro": "Write a script that repeats a call and compares the outcome.",
    "compare": "Compare two stores and list what got worse.",
    "report": "Write an HTML report about a store.",
    "review": "Say whose fault calls are, and get rates from the answers.",
    "explore": "Browse a store: calls, sessions, questions and SQL.",
    "validate": "Predict whether a tool would accept a call.",
    "serve": "Serve a store over MCP (stdio).",
    "mock": "Answer MCP requests from a recording.",
    "rules": "Print the rules for findings, verdicts and scores.",
    "evaluate": "Measure the accuracy of the verdict on labelled calls.",
    "doctor": "Check the environment and stores.",
}
"""Maps commands to one-line help. Each module is named after its command, except `import_`."""


def _module(name: str) -> str:
    return f"mcptally.cli.{name}_" if name == "import" else f"mcptally.cli.{name}"


def _is_installed(name: str) -> bool:
    """Return whether this distribution has the command; mcptally-recorder has only a few."""
    import importlib.util

    return importlib.util.find_spec(_module(name)) is not None


class _Lazy(click.Group):
    """A click group that imports a command's module only when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            command: click.Command = importlib.import_module(_module(cmd_name)).command
        except ModuleNotFoundError as error:
            if error.name != _module(cmd_name):
                raise
            raise UsageError(NOT_IN_RECORDER.format(f"`{cmd_name}`")) from None
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        # During shell completion, an error message would garble the user's prompt.
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            if not _is_path(name):
                ctx.fail(f"no command, file or folder is called {name!r}{near(name, COMMANDS)}")
            args = [_OF_PATHS, *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Treat `mcptally --json PATH` like `mcptally PATH --json`.
        if args and args[0].startswith("--") and args[0] not in ("--help", "--version"):
            args = [_OF_PATHS, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        # `invoke` clears the arguments.
        arguments = [*getattr(ctx, "_protected_args", ()), *ctx.args]
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # A program such as `head` closed the pipe. This is not an error, but click would exit
            # with 1.
            _discard_stdout()
            ctx.exit(Exit.DONE)
        except (KeyboardInterrupt, click.Abort):
            _exit_interrupted(ctx)
        except OSError as error:
            raise _os_error(error, arguments) from error
        except Exception as error:
            if _is_interrupt(error):
                _exit_interrupted(ctx)
            if not isinstance(error, McptallyError) and is_full(error, *arguments):
                raise _disk_full(arguments) from error
            cause = error.__cause__ if isinstance(error, QueryError) else error
            if cause is None or not _may_be_damage(cause):
                raise
            from mcptally.pipeline.fingerprint import refuse_damaged

            refuse_damaged(arguments)
            raise

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, text) for name, text in COMMANDS.items() if _is_installed(name)]
            )


def _exit_interrupted(ctx: click.Context) -> NoReturn:
    sys.stderr.write("mcptally: interrupted\n")
    ctx.exit(Exit.INTERRUPTED)


def _is_interrupt(error: Exception) -> bool:
    """Return whether Ctrl-C caused this DuckDB error, possibly while a UDF was running."""
    return str(error) == "Query interrupted" or "executing the UDF: KeyboardInterrupt" in str(error)


_OF_PATHS: Final = "overview"
"""The command that `mcptally PATH` runs."""


def _is_path(word: str) -> bool:
    """Return whether a word that is not a command is probably meant as a path or pattern."""
    return os.path.lexists(word) or any(sign in word for sign in (os.sep, "*", "?", "["))


_READERS: Final = frozenset({"duckdb", "_duckdb", "polars", "pyarrow"})
"""Names of the packages that read a store's files; importing the packages would be slow."""

_QUERY_ERRORS: Final = frozenset(
    {"Parser", "Syntax", "Binder", "Catalog", "Conversion", "OutOfRange"}
)
"""DuckDB errors that are caused by the query, not by the files."""


def _may_be_damage(error: BaseException) -> bool:
    """Return whether a damaged file in a store may have caused the error."""
    kind = type(error)
    return (
        kind.__module__.partition(".")[0] in _READERS
        and kind.__name__.removesuffix("Exception") not in _QUERY_ERRORS
    )


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(mcptally.__version__)
def cli() -> None:
    """Record and analyze MCP traffic to find out which tools and servers are reliable.

    \b
    See what matters:   mcptally traces
    Record a server:    mcptally record --out traces -- npx -y some-mcp-server
    Score an archive:   mcptally score traces -o store
    Answer a question:  mcptally query store tool_scores
    """


def main() -> None:
    """Run the command line; print expected errors on stderr and exit with the matching code."""
    code: str | int | None = Exit.DONE
    _open_closed_streams()
    _escape_unknown_characters()
    _name_stdout()
    try:
        try:
            code = cli(standalone_mode=False, prog_name="mcptally") or Exit.DONE
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()  # flush now, while write errors are still caught
    except click.ClickException as error:
        sys.stderr.write(f"mcptally: {_usage_problem(error)}\n")
        code = error.exit_code
    except McptallyError as error:
        from mcptally.redaction.display import as_message  # the error may quote recorded text

        sys.stderr.write(f"mcptally: {as_message(str(error))}\n")
        code = error.exit_code
    except BrokenPipeError:
        _discard_stdout()
    except OSError as error:  # the text of --help or --version cannot be written
        failed = _os_error(error)
        sys.stderr.write(f"mcptally: {failed}\n")
        code = failed.exit_code
    # Exit outside the handler, so that objects to which the error refers, such as a store, are
    # closed first.
    sys.exit(code)


def _usage_problem(error: click.ClickException) -> str:
    """Return click's error message, reworded in the style of our own messages."""
    text = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    more = "" if context is None or text.endswith("?") else f"; see {context.command_path} --help"
    return f"{text[:1].lower()}{text[1:]}{more}"


def _disk_full(arguments: Sequence[str]) -> UnreadableError:
    """Return the error for a full disk; it names the argument whose path is on the disk, if any."""
    place = full_place([*arguments, tempfile.gettempdir()])
    where = f"{place}: cannot be written: " if place else ""
    return UnreadableError(f"{where}the disk is full; free some space and start the command again")


def _os_error(error: OSError, arguments: Sequence[str] = ()) -> UnreadableError:
    """Convert a system error to `UnreadableError`, with the file's name if known."""
    _discard_stdout()  # writing to stdout may have failed
    if error.filename is None and is_full(error):
        return _disk_full(arguments)
    where = f"{error.filename}: " if error.filename else ""
    return UnreadableError(f"{where}{reason(error)}")


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed.

    Otherwise, files opened later would reuse the streams' descriptors.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            lowest_free = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(lowest_free, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


_JSON_ESCAPES: Final = "mcptally.json"
"""Name of the error handler that `_escape_unknown_characters` registers in `codecs`."""


def _escape_unknown_characters() -> None:
    """Make stdout escape characters that its encoding lacks; by default, writing them fails."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        codecs.register_error(_JSON_ESCAPES, _json_escapes)
        sys.stdout.reconfigure(errors=_JSON_ESCAPES)


def _json_escapes(error: UnicodeError) -> tuple[str, int]:
    """Return the JSON escapes of characters that stdout's encoding lacks."""
    found = cast("UnicodeEncodeError", error)
    units = found.object[found.start : found.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), found.end


class _Stdout(io.FileIO):
    """The raw stream behind stdout; a write error has the file name `stdout`."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "stdout"
            raise


def _name_stdout() -> None:
    """Replace `sys.stdout` with a stream whose write errors have the file name `stdout`."""
    old: TextIO = sys.stdout
    if type(old) is io.TextIOWrapper:  # a test may have replaced stdout
        descriptor = _Stdout(old.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            descriptor if old.write_through else io.BufferedWriter(descriptor),
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )


def _discard_stdout() -> None:
    """Redirect stdout to the null device, so that flushing it at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
