"""Loads the verdict rules: the shipped rules, as changed by a user's rule file."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from mcptally.errors import RuleError, reason
from mcptally.verdict import classify, examples, hidden_errors, rule_model


class RuleSet(msgspec.Struct, frozen=True):
    """The rules about failed calls (`verdict`), and about results that hide an error (`hidden`)."""

    verdict: Sequence[rule_model.VerdictRule] = msgspec.field(
        default_factory=classify.failure_rules
    )
    hidden: Sequence[rule_model.HiddenRule] = msgspec.field(
        default_factory=hidden_errors.hidden_error_rules
    )
    changes: str = ""
    """The TOML text of the user's rule file."""

    @classmethod
    def load(cls, path: Path | None = None) -> "RuleSet":
        """Load the shipped rules, and apply the changes in a user's TOML file.

        Raises:
            RuleError: the file cannot be read, a rule is incomplete, or a rule contradicts one
                of its own examples.
        """
        if path is None:
            return cls()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RuleError(f"{path}: {reason(error)}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, changes: str, where: str) -> "RuleSet":
        """Load the shipped rules, and apply changes given as TOML text.

        Args:
            changes: the text; if empty, nothing is changed.
            where: name of the file, for messages.

        Raises:
            RuleError: a rule is incomplete, or contradicts one of its own examples.
        """
        shipped = cls()
        if not changes:
            return shipped
        verdict_changes, hidden_changes = rule_model.parse_changes(changes, where)
        verdict = rule_model.apply(shipped.verdict, verdict_changes, where=where)
        hidden = rule_model.apply(shipped.hidden, hidden_changes, where=where)
        examples.check((*verdict, *hidden), (*verdict_changes, *hidden_changes), where=where)
        return cls(verdict=verdict, hidden=hidden, changes=changes)
