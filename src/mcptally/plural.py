"""Formats a count with its noun in the singular or plural: `1 file`, `2 files`."""


def count(n: int | float | None, noun: str = "", plural: str = "") -> str:
    """Format a number with thousands separators, followed by a noun in the singular or plural.

    Args:
        n: the count; None counts as 0.
        noun: the noun in the singular; if empty, only the number is returned.
        plural: the noun in the plural; by default the singular with `s`.
    """
    number = f"{n or 0:,}" if isinstance(n, int | None) else f"{n:,.0f}"
    if not noun:
        return number
    return f"{number} {noun if n == 1 else plural or f'{noun}s'}"
