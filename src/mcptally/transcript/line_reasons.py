"""Counts the skipped lines of a file by reason."""

from pathlib import Path


class LineReasons:
    """The reasons why lines were skipped, each with its first line and number of lines."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}

    def add(self, why: str, line: int) -> None:
        """Count a line."""
        first, count = self._places.get(why, (line, 0))
        self._places[why] = (first, count + 1)

    def messages(self, path: Path) -> list[str]:
        """Return one message per reason, each starting with the location of its first line."""
        return [
            f"{path}:{first}: {why}" + (f" (and {count - 1} more)" if count > 1 else "")
            for why, (first, count) in self._places.items()
        ]
