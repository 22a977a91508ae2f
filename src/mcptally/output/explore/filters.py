"""Adds to the templates' environment what all pages but the first page's head need."""

import jinja2

from mcptally.output.html import charts, template_filters
from mcptally.tables.values import cell


def add_to(templates: jinja2.Environment) -> None:
    """Add the filters and variables of the pages' and of the report's macros."""
    templates.filters |= template_filters() | {"cell": _cell}
    templates.globals |= {
        "many_servers": False,
        "rate_ticks": [charts.rate_x(tick) for tick in charts.RATE_TICKS],
        "rate_labels": [(charts.rate_x(tick), f"{tick:.0%}") for tick in (0.0, 0.5, 1.0)],
        "times": [(charts.time_x(ms), label) for ms, label in charts.TIMES],
    }


def _cell(value: object, name: str = "") -> str:
    """Format a value from the column `name` as text."""
    return cell(name, value)
