"""Computes verdicts: who is at fault for a failed call, and which results are hidden errors.

May import `rules`, `tables` and `errors`. Rules are rows of `rules/verdict-*.toml` (applied by
`classify`) and of `rules/hidden.toml` (applied by `hidden_errors`). `languages.toml` contains words
in other languages.
"""

from mcptally.verdict.classify import judge
from mcptally.verdict.hidden_errors import find_hidden_errors

__all__ = ["find_hidden_errors", "judge"]
