"""The command `mcptally overview`, also called by `mcptally PATH`: prints what matters most."""

import contextlib
import shutil
import sys
import webbrowser
from typing import Any

import click

from mcptally.cli.options import TABLE_OR_JSON, call_filters


@click.command(name="overview")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--open", "opens", is_flag=True, help="Open the report in a browser.")
@click.option(
    "--skipped", "lists", is_flag=True, help="Print the files that were skipped, and why."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Maximum number of problems; 0: all.",
)
@TABLE_OR_JSON
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@call_filters
def command(
    paths: tuple[str, ...], *, opens: bool, lists: bool, limit: int, form: str, **filters: Any
) -> None:
    """Import and score recordings or logs, and print what matters most.

    `mcptally PATH...` does the same. PATH is a file, a folder or a pattern of transcripts, or of
    logs that `mcptally import` can read; both can be mixed. The command prints on one screen what
    was read, the share of calls that got what they asked for, and the five problems that affect
    most calls: how many calls with the 95 % interval of their share, whose fault, since when (UTC),
    and an example.

    Files in folders that are neither transcripts nor logs are skipped. --skipped prints the skipped
    files and how formats are recognised, in place of the findings. With --server, --tool, --since
    and the like, all numbers on the screen are about the selected calls; the report is about all
    calls.

    The store and the report are kept in $XDG_CACHE_HOME/mcptally (default: ~/.cache/mcptally), in a
    folder for these paths that only you can read. The next run reads only what changed. Folders
    that were not used for 30 days are removed. Nothing is written beside the inputs.

    \b
    Examples:
      mcptally overview traces ~/Library/Logs/Claude --open
      mcptally overview 'traces/2026-11-*.jsonl.zst'
      mcptally traces
      mcptally traces --server git --since 7d --limit 10
      mcptally traces --json
    """
    from mcptally.cli.score import progress_bar
    from mcptally.output.overview import Overview, overview
    from mcptally.output.overview.screen import as_json, screen, skipped
    from mcptally.process_memory import configure_allocators
    from mcptally.redaction.display import clean_line

    configure_allocators()
    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    names = [clean_line(path) for path in paths]
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(progress_bar())

        def show(found: Overview) -> None:
            stack.close()  # removes the progress bar
            if lists:
                sys.stdout.write(skipped(found.answer))
            elif form == "json":
                sys.stdout.write(as_json(names, found.answer, found.store, found.page))
            else:
                sys.stdout.write(screen(names, found.answer, found.store, found.page, width=width))
            sys.stdout.flush()

        found = overview(
            paths,
            most=limit,
            filters=filters,
            progress=progress,
            on_wait=_say_waiting,
            on_answer=show,
        )
    if opens:
        webbrowser.open(found.page.as_uri())


def _say_waiting() -> None:
    sys.stderr.write("another mcptally reads the same paths; waiting for its result\n")
