"""Constants of transcript format 1: its version, event names and file suffixes.

A transcript is UTF-8 JSON Lines, one event per line; docs/reference/transcript.md describes the
fields. It is the only format that is ever migrated: tables are rebuilt from transcripts.
"""

from typing import Final, Literal, get_args

FORMAT_VERSION: Final = 1
"""Value of `v` in every event."""

Event = Literal["open", "message", "raw", "stderr", "http", "gap", "close"]
"""Kind of an event."""
EVENT_NAMES: Final[tuple[str, ...]] = get_args(Event)
"""All kinds of events."""

RECORDER: Final = "mcptally 0.2.0"
"""Value of `recorder` in the `open` events that mcptally writes: its name and version.

A constant: reading the package metadata would slow down the start of the recorder."""

WITHHELD: Final = "withheld"
"""The member of a line that `mcptally redact` writes in place of a line it cannot search.

Its value is the reason. The line is not an event: it has no `event`, `recording` or `seq`."""

Dir = Literal["c2s", "s2c"]
"""Direction of a message: client to server, or server to client."""

Transport = Literal["stdio", "streamable_http", "http_sse", "import"]
"""Transport of a recording; `import`: it was converted from a log of another program."""

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""Suffixes of the files that are read in a folder; a file that is named is always read."""

JOURNAL_SUFFIX: Final = ".journal"
"""Suffix of the file with the events that a recorder has not written to its transcripts yet."""
