"""Loads the rule rows (word lists, weights, thresholds, confidences) of each `Interpretation`."""

import functools
import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from mcptally import rules
from mcptally.seeds.inspector.model import Interpretation, ScenarioResult, ValidationResult

FILES: Final[dict[Interpretation, str]] = {"document": "seed.toml", "inspector": "inspector.toml"}


class SeedRule(rules.Rule, frozen=True, kw_only=True):
    """A rule row from which the seed score is computed."""

    part: str
    """The part of the score that uses the row; a part may have several rows."""
    members: tuple[str, ...] = ()
    """Lower-case substrings that match if they occur in the examined text or in the tool's name."""
    regex: str = ""
    """Pattern that matches the examined text or the tool's name; it means the same in Python and
    polars."""
    weight: float = 0.0
    """Points of a factor, or weight of a classification in the overall confidence."""
    threshold: float | None = None
    """Share of the points from which an error counts as a business error, if this row matches."""
    value: float | None = None
    """Number that the row defines: a confidence, a share, a code or a count."""
    classification: str = ""

    def holds(self, text: str) -> bool:
        """Return whether a text in lower case matches the regex or contains one of the members."""
        return any(member in text for member in self.members) or bool(
            self.regex and re.search(self.regex, text)
        )


class RuleRows(msgspec.Struct, frozen=True):
    """All rule rows of one interpretation."""

    rows: tuple[SeedRule, ...]

    def part(self, part: str) -> tuple[SeedRule, ...]:
        """Return the rows of a part of the score.

        Raises:
            LookupError: the rule file has no row of this part.
        """
        if found := tuple(row for row in self.rows if row.part == part):
            return found
        raise LookupError(f"no rule row has part = {part!r}")

    def members(self, part: str) -> list[str]:
        """Return the distinct substrings (`SeedRule.members`) in a part of the score."""
        return list(dict.fromkeys(member for row in self.part(part) for member in row.members))

    def holds(self, part: str, text: str) -> bool:
        """Return whether any row of a part of the score matches a text in lower case."""
        return any(row.holds(text) for row in self.part(part))

    def weight(self, part: str) -> float:
        """Return the greatest weight among the rows of a part of the score."""
        return max(row.weight for row in self.part(part))

    def threshold(self, part: str) -> float:
        """Return the lowest threshold among the rows of a part of the score."""
        return min(row.threshold for row in self.part(part) if row.threshold is not None)

    def threshold_of(self, *, strong: bool, high: bool, expected: bool) -> float:
        """Return the threshold for an error text with a strong or high-confidence phrase.

        `expected` means that the tool's name suggests that the tool checks its input.
        """
        if strong:
            return self.threshold("strong")
        if high:
            return self.threshold("high_confidence")
        return self.threshold("tool_keyword" if expected else "threshold")

    def value(self, part: str) -> float:
        """Return the value of the only row of a part of the score."""
        (row,) = self.part(part)
        if row.value is None:
            raise LookupError(f"rule {row.id} has no value")
        return row.value

    def confidence(self, classification: str) -> float:
        """Return the confidence that belongs to a classification, from 0 to 100."""
        values = {row.classification: row.value for row in self.part("classification")}
        value = values[classification]
        if value is None:
            raise LookupError(f"{classification} has no value")
        return value

    def mean_confidence(self, results: Sequence[ValidationResult | ScenarioResult]) -> float:
        """Return the mean of confidence times class weight over at least one result, from 0 to 100.

        The mean is NaN if a result has no confidence, or a classification without a row.
        """
        weights = {row.classification: row.weight for row in self.part("classification")}
        total = 0.0
        for result in results:
            weight = weights.get(result.classification or "", math.nan)
            total += (math.nan if result.confidence is None else result.confidence) * weight
        return total / (len(results) * 100) * 100


@functools.cache
def rule_rows(interpretation: Interpretation) -> RuleRows:
    """Return the rule rows of an interpretation."""
    return RuleRows(rules.load(SeedRule, FILES[interpretation]))
