"""The rule rows of both readings, and the lists that are read out of them."""

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from typing import Final

from mcptally import rules
from mcptally.seeds.inspector.model import Rules, ScenarioResult, ValidationResult

FILES: Final[dict[Rules, str]] = {"document": "seed.toml", "inspector": "inspector.toml"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedRule(rules.Rule):
    """A row of the seed score."""

    part: str
    """What the row is for; rows of one part are read together."""
    members: tuple[str, ...] = ()
    """Plain substrings of the examined text, or the tool's name, in lower case."""
    regex: str = ""
    """Searched in the same text; Python and polars read it alike."""
    weight: float = 0.0
    """Points of a factor, or weight of a classification in the overall confidence."""
    threshold: float | None = None
    """Share of the points that is enough where this row holds."""
    value: float | None = None
    """The number that the row is about: a confidence, a share, a code, a count."""
    classification: str = ""

    def holds(self, text: str) -> bool:
        """Whether a member or the regex is in the text, which is in lower case."""
        return any(member in text for member in self.members) or bool(
            self.regex and re.search(self.regex, text)
        )


@dataclasses.dataclass(frozen=True)
class Rows:
    """All rows of one reading."""

    rows: tuple[SeedRule, ...]

    def part(self, part: str) -> tuple[SeedRule, ...]:
        """The rows of a part.

        Raises:
            LookupError: there are none, so the rule file and the code have come apart.
        """
        if found := tuple(row for row in self.rows if row.part == part):
            return found
        raise LookupError(f"no rule row has part = {part!r}")

    def members(self, *parts: str) -> tuple[str, ...]:
        """Members of all rows of these parts, each once."""
        rows = [row for part in parts for row in self.part(part)]
        return tuple(dict.fromkeys(member for row in rows for member in row.members))

    def regexes(self, part: str) -> tuple[str, ...]:
        """Regexes of the rows of a part."""
        return tuple(row.regex for row in self.part(part) if row.regex)

    def holds(self, part: str, text: str) -> bool:
        """Whether any row of the part holds of the text, which is in lower case."""
        return any(row.holds(text) for row in self.part(part))

    def weight(self, part: str) -> float:
        """Weight of a part: the greatest of its rows."""
        return max(row.weight for row in self.part(part))

    def threshold(self, part: str) -> float:
        """Threshold of a part: the least of its rows."""
        return min(row.threshold for row in self.part(part) if row.threshold is not None)

    def value(self, part: str) -> float:
        """The number of a part that is one row."""
        (row,) = self.part(part)
        if row.value is None:
            raise LookupError(f"rule {row.id} has no value")
        return row.value

    def confidence(self, classification: str) -> float:
        """Confidence that comes with a classification, 0 to 100."""
        row = self._classification(classification)
        if row.value is None:
            raise LookupError(f"rule {row.id} has no value")
        return row.value

    def class_weight(self, classification: str) -> float:
        """Weight of a classification in the overall confidence; NaN for one that has no row."""
        try:
            return self._classification(classification).weight
        except LookupError:
            return float("nan")

    def mean_confidence(self, results: Sequence[ValidationResult | ScenarioResult]) -> float:
        """Mean of confidence times class weight, 0 to 100, of at least one result.

        NaN where one lacks a confidence, or a classification that has a row.
        """
        total = 0.0
        for result in results:
            weight = self.class_weight(result.classification or "")
            total += (math.nan if result.confidence is None else result.confidence) * weight
        return total / (len(results) * 100) * 100

    def _classification(self, name: str) -> SeedRule:
        for row in self.part("classification"):
            if row.classification == name:
                return row
        raise LookupError(f"no rule row has classification = {name!r}")


@functools.cache
def rows(reading: Rules) -> Rows:
    """The rows of a reading, loaded once."""
    return Rows(rules.load(SeedRule, FILES[reading]))
