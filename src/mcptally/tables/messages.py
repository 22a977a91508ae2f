"""The table `messages`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Messages(Table):
    """One row per JSON-RPC message; each member of a batch is a message."""

    name = "messages"
    key = ("recording", "seq", "index")

    recording = Column(pl.String, "Recording that the message belongs to.")
    seq = Column(pl.Int64, "Order of arrival within the recording.")
    index = Column(pl.UInt32, "Position in a JSON-RPC batch; 0 otherwise.")
    batch = Column(pl.Boolean, "Whether the message came in a JSON-RPC batch.")
    session = Column(pl.String, "Session that the message belongs to; see `calls.session`.")
    dir = Column(pl.String, "`c2s` (client to server) or `s2c`.")
    scope = Column(pl.String, "HTTP exchange; null on a pipe.")
    at = Column(TIME, "When its last byte arrived.")
    bytes = Column(
        pl.Int64, "Length on the wire; for a member of a batch, the length of the batch.", "bytes"
    )
    kind = Column(pl.String, "`request`, `notification`, `result`, `error` or `invalid`.")
    method = Column(pl.String, "Method of a request or notification.")
    request_id = Column(pl.String, "JSON text of `id` as on the wire; null where absent.")
    call_id = Column(
        pl.String, "Call that the message requests, answers, cancels or reports progress for."
    )
    match = Column(
        pl.String,
        "How a reply was matched to its call: `exact`, `loose` (by value only), `late`, "
        "`second`, `replay`, `orphan`; null for other kinds.",
    )
    file = Column(pl.String, "Transcript file.")
    line = Column(pl.Int64, "Line in the file, from 1.")
