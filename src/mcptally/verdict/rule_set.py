"""Loads the verdict rules in force: those that come with mcptally, changed by a user's file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from mcptally.verdict import classify, examples, hidden_errors, rule_model


@dataclasses.dataclass(frozen=True)
class RuleSet:
    """The rules about failed calls (`verdict`) and about results that hide an error (`hidden`)."""

    verdict: Sequence[rule_model.VerdictRule] = dataclasses.field(
        default_factory=classify.failure_rules
    )
    hidden: Sequence[rule_model.HiddenRule] = dataclasses.field(
        default_factory=hidden_errors.hidden_error_rules
    )

    @classmethod
    def load(cls, path: Path | None = None) -> "RuleSet":
        """Return the rules that come with mcptally, with the changes in the TOML file `path`.

        Raises:
            RuleError: the file cannot be read, a rule is incomplete, or a rule contradicts one of
                its own examples.
        """
        shipped = cls()
        if path is None:
            return shipped
        verdict_changes, hidden_changes = rule_model.read_changes(path)
        verdict = rule_model.apply(shipped.verdict, verdict_changes, where=str(path))
        hidden = rule_model.apply(shipped.hidden, hidden_changes, where=str(path))
        examples.check((*verdict, *hidden), (*verdict_changes, *hidden_changes), where=str(path))
        return cls(verdict=verdict, hidden=hidden)
