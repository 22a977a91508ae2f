"""The verdict: when a call fails, whose failure it is; when it succeeds, whether it did."""

from mcptally.verdict.hidden import hidden
from mcptally.verdict.judge import judge

__all__ = ["hidden", "judge"]
