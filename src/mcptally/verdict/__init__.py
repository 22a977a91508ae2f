"""The verdict: when a call fails, whose failure it is; when it succeeds, whether it did."""

from mcptally.verdict.classify import judge
from mcptally.verdict.hidden_errors import hidden

__all__ = ["hidden", "judge"]
