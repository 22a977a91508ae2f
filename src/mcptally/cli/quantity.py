"""Defines option types for sizes and durations with units (`64M`, `7d`), or `off`."""

import math
from typing import Any, Final

import click

_MULTIPLES: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SIZES: Final = {unit + b: n for unit, n in _MULTIPLES.items() for b in ("", "b", "ib")}
_DURATIONS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Quantity(click.ParamType[float | None]):
    """The type of an option whose value is a number with a unit, or `off`."""

    def __init__(self, name: str, units: dict[str, int]) -> None:
        self.name = name
        self._units = units

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the number of bytes or seconds; None for `off`.

        Raises:
            click.BadParameter: the text is not a number with a unit, or the number is not above 0.
        """
        text = str(value).strip().lower()
        if text == "off":
            return None
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
        try:
            result = float(number) * self._units[text[len(number) :]]
        except (ValueError, KeyError):
            result = -1
        if not 0 < result < 2**62:
            known = ", ".join(unit for unit in self._units if len(unit) == 1)
            self.fail(
                f"{value!r} is not a valid {self.name}: give a number with {known}, or 'off'",
                param,
                ctx,
            )
        return result


class Seconds(click.FloatRange):
    """The type of an option whose value is a positive number of seconds."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number of seconds.

        Raises:
            click.BadParameter: the text is not a number above 0.
        """
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):  # comparisons with NaN are never true
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


def size_text(size: float) -> str:
    """Return a size in DuckDB's notation, in the largest unit that gives a whole number."""
    unit = next(unit for unit in ("tib", "gib", "mib", "kib", "b") if size % _SIZES[unit] == 0)
    return f"{int(size // _SIZES[unit])}{unit.upper().replace('I', 'i')}"


SIZE: Final = Quantity("size", _SIZES)
"""A size in bytes; units are powers of 1024: `64M`, `64MiB`."""
DURATION: Final = Quantity("time", _DURATIONS)
"""A duration in seconds: `90`, `1.5h`, `7d`."""
SECONDS: Final = Seconds()
"""A number of seconds."""
