"""The verdict: when a call fails, whose failure it is; when it succeeds, whether it did."""

from mcptally.verdict.judge import judge

__all__ = ["judge"]
