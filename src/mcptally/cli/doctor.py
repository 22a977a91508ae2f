"""The command `mcptally doctor`: checks the environment and stores."""

import dataclasses
import sys
from pathlib import Path

import click

from mcptally.cli.options import PATH, TABLE_OR_JSON, write_json
from mcptally.errors import Exit


@click.command(name="doctor")
@click.option(
    "--store", "stores", type=PATH, multiple=True, help="A store to check. Can be repeated."
)
@click.option(
    "--config",
    "configs",
    type=PATH,
    multiple=True,
    help="A client's configuration file, instead of those in the usual places. Can be repeated.",
)
@TABLE_OR_JSON
def command(*, stores: tuple[Path, ...], configs: tuple[Path, ...], form: str) -> None:
    """Check Python, packages, environment, disk, client configurations and stores.

    The result of each check is ok, warning or error, with advice. The exit code is 1 if there is
    an error. Values of environment variables are never printed.

    \b
    Examples:
      mcptally doctor
      mcptally doctor --store store
      mcptally doctor --format json | jq '.[] | select(.state != "ok")'
    """
    from mcptally.maintenance import doctor
    from mcptally.redaction.display import as_message, mask_value

    found = doctor.examine(stores=stores, configs=configs or None)
    if form == "json":
        write_json([mask_value(dataclasses.asdict(each)) for each in found])
    else:
        colours = {"ok": "green", "warning": "yellow", "error": "red"}
        for each in found:
            state = click.style(f"{each.state:<8}", fg=colours[each.state])
            click.echo(f"{state} {as_message(each.name)}: {as_message(each.says)}")
            if each.do:
                click.echo(f"         {as_message(each.do)}")
    if doctor.worst(found) == "error":
        sys.exit(Exit.FAILED)
