"""A count with its noun in the right number: `1 file`, `2 files`."""


def count(n: int | float | None, noun: str = "", plural: str = "") -> str:
    """`n` with thousands apart, and the noun in the right number."""
    number = f"{n or 0:,.0f}"
    if not noun:
        return number
    return f"{number} {noun if n == 1 else plural or f'{noun}s'}"
