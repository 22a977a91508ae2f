"""Declares the table `messages`."""

from mcptally.tables.column_types import BOOLEAN, INT64, STRING, TIME, UINT32
from mcptally.tables.declaration import Column, Table


class Messages(Table):
    """One row per JSON-RPC message; each member of a batch is a message."""

    name = "messages"
    key = ("recording", "seq", "index")

    recording = Column(STRING, "Recording that the message belongs to.")
    seq = Column(INT64, "Order of arrival within the recording.")
    index = Column(UINT32, "Position in a JSON-RPC batch; 0 otherwise.")
    batch = Column(BOOLEAN, "Whether the message came in a JSON-RPC batch.")
    session = Column(STRING, "Session that the message belongs to; see `calls.session`.")
    dir = Column(STRING, "`c2s` (client to server) or `s2c`.")
    scope = Column(STRING, "HTTP exchange; null on a pipe.")
    at = Column(TIME, "When its last byte arrived.")
    bytes = Column(
        INT64, "Length on the wire; for a member of a batch, the length of the batch.", "bytes"
    )
    kind = Column(STRING, "`request`, `notification`, `result`, `error` or `invalid`.")
    method = Column(STRING, "Method of a request or notification.")
    request_id = Column(STRING, "JSON text of `id` as on the wire; null where absent.")
    call_id = Column(
        STRING, "Call that the message requests, answers, cancels or reports progress for."
    )
    match = Column(
        STRING,
        "How a reply was matched to its call: `exact`, `loose` (by value only), `late`, "
        "`second`, `replay`, `orphan`; null for other kinds.",
    )
    file = Column(STRING, "Transcript file.")
    line = Column(INT64, "Line in the file, from 1.")
