"""The command `mcptally check`: checks whether an archive is complete."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mcptally.cli.options import PATH, TABLE_OR_JSON, write_json, write_unread
from mcptally.errors import Exit
from mcptally.plural import count

if TYPE_CHECKING:
    from mcptally.transcript.check import ArchiveCheck

_MAX_TEXT: Final = 200
"""Maximum number of characters of recorded text in an output line."""


@click.command()
@click.argument("archive", nargs=-1, required=True, type=PATH)
@TABLE_OR_JSON
@click.pass_context
def command(ctx: click.Context, archive: tuple[Path, ...], form: str) -> None:
    """Check whether an archive is complete: one line per recording, with its problems.

    Problems are incomplete last lines, lines that are not events, lost, missing and repeated
    events, missing segments, times that go backwards, wrong counts in `close`, and recordings
    without `close` (still being written, or killed). The exit code is 0 if the archive is whole, 1
    if it is not, and 3 if nothing is readable.

    \b
    Examples:
      mcptally check traces
      mcptally check traces --format json | jq '.recordings[] | select(.verdict != "whole")'
    """
    import dataclasses

    import msgspec

    from mcptally.redaction.display import mask_value
    from mcptally.transcript.check import check

    answer = check(archive)
    if form == "json":
        write_json(mask_value(msgspec.to_builtins(dataclasses.asdict(answer))))
    else:
        write_unread(answer.unread)
        _table(answer)
    ctx.exit(Exit.DONE if answer.whole else Exit.FAILED)


def _table(answer: "ArchiveCheck") -> None:
    from mcptally.redaction.display import as_message

    def plain(text: str) -> str:
        line = as_message(text)
        return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"

    rows = [("verdict", "events", "segments", "server", "recording")]
    rows += [
        (r.verdict, str(r.events), str(r.segments), plain(r.server or "-"), plain(r.recording))
        for r in answer.recordings
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    problems: list[list[str]] = [[], *(r.problems for r in answer.recordings)]
    lines: list[str] = []
    for row, found in zip(rows, problems, strict=True):
        cells = [
            cell.rjust(width) if i in {1, 2} else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[4]]))
        lines += [f"    {plain(problem)}" for problem in found]
    click.echo("\n".join(lines))
    for file in answer.damaged_files:
        click.echo(f"{plain(file.file)}: {count(file.bytes_not_read, 'byte')} not read")
        for problem in file.problems:
            click.echo(f"    {plain(problem)}")
    verdict = "whole"
    if not answer.whole:
        damaged = sum(r.verdict != "whole" for r in answer.recordings)
        files = count(len(answer.damaged_files), "damaged file")
        verdict = f"not whole: {count(damaged, 'recording')}, {files}"
    click.echo(
        f"{count(len(answer.recordings), 'recording')}, {count(answer.events, 'event')}, "
        f"{count(answer.files, 'file')}: {verdict}",
        err=True,
    )
