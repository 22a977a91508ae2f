"""Defines the constants of transcript format 1: version, event names and file suffixes.

A transcript is UTF-8 JSON Lines, one event per line; docs/reference/transcript.md describes the
fields. Only transcripts are ever migrated; tables are rebuilt from transcripts.
"""

from typing import Final, Literal, get_args

FORMAT_VERSION: Final = 1
"""Value of `v` in every event."""

Event = Literal["open", "message", "raw", "stderr", "http", "gap", "close"]
"""Kind of an event."""
EVENT_NAMES: Final[tuple[str, ...]] = get_args(Event)
"""All kinds of events."""

RECORDER: Final = "mcptally 0.2.0"
"""Value of `recorder` in the `open` events that mcptally writes: name and version.

A constant, because reading the package metadata would slow down the recorder's startup."""

WITHHELD: Final = "withheld"
"""The member of a line that `mcptally redact` writes in place of an unsearchable line.

Its value is the reason. The line is not an event: it has no `event`, `recording` or `seq`."""

NOT_CONNECTED: Final = "mcptally: no connection to the server"
"""Begins the recorder's answer with status 502 to a request that it could not forward."""
REFUSED: Final = "mcptally: request refused"
"""Begins the recorder's answer to a request that it does not forward."""

Dir = Literal["c2s", "s2c"]
"""Direction of a message: client to server, or server to client."""

Transport = Literal["stdio", "streamable_http", "http_sse", "import"]
"""Transport of a recording; `import` if the recording was converted from another program's log."""

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""Suffixes of the files that are read in a folder; a file named explicitly is always read."""

JOURNAL_SUFFIX: Final = ".journal"
"""Suffix of files with events that a recorder has not yet written to its transcripts."""
