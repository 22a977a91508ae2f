"""The transcript, format 1: its version, its words, its limits.

A transcript is UTF-8 JSON Lines, one event a line; docs/reference/transcript.md describes the
fields. This is the one format that is ever migrated: tables are rebuilt from it.
"""

from typing import Final, Literal, get_args

FORMAT_VERSION: Final = 1
"""Value of `v` in every event."""

Event = Literal["open", "message", "raw", "stderr", "http", "gap", "close"]
"""What a line tells of."""
EVENT_NAMES: Final[tuple[str, ...]] = get_args(Event)
"""Every `Event`."""

WITHHELD: Final = "withheld"
"""The value of `event` in a line that `mcptally redact` writes in place of a line it cannot search.

It is not an event: it has `why` and `bytes`, but neither a recording nor a `seq`."""

Dir = Literal["c2s", "s2c"]
"""Which way bytes went: client to server, or server to client."""

Transport = Literal["stdio", "streamable_http", "http_sse", "import"]
"""What carried a recording; `import`: it was made of another program's log."""

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""What is read of a folder, recursively; a file that is named is always read."""
