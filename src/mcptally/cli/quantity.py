"""Sizes and spans of time as people write them on a command line: `64M`, `7d`, `off`."""

from typing import Final

import click

_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SPANS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Quantity(click.ParamType[float | None]):
    """A number with a unit, or `off`."""

    def __init__(self, name: str, units: dict[str, int]) -> None:
        self.name = name
        self._units = units

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """The number of bytes or seconds; None for `off`."""
        text = str(value).strip().lower()
        if text == "off":
            return None
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = text[len(number) :].removesuffix("ib").removesuffix("b") or ""
        try:
            result = float(number) * self._units[unit]
        except (ValueError, KeyError):
            result = -1
        if not 0 < result < 2**62:
            known = ", ".join(u for u in self._units if u)
            self.fail(f"{value!r} is no {self.name}: a number with {known}, or 'off'", param, ctx)
        return result


SIZE: Final = Quantity("size", _UNITS)
SPAN: Final = Quantity("time", _SPANS)
