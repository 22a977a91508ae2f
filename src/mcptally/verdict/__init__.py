"""The verdict: who is at fault for a failed call, and which successful results hide an error.

May import `rules`, `tables` and `errors`. Rules are rows of `rules/verdict-*.toml` and
`rules/hidden.toml`; `classify` applies the former, `hidden_errors` the latter. `languages.toml` has
the words of other languages.
"""

from mcptally.verdict.classify import judge
from mcptally.verdict.hidden_errors import find_hidden_errors

__all__ = ["find_hidden_errors", "judge"]
