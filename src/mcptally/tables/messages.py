"""Declaration of the table `messages`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Messages(Table):
    """One row a JSON-RPC message, batch members apart."""

    name = "messages"
    meaning = "One row a message, members of a batch apart."
    key = ("recording", "seq", "index")

    recording = Column(pl.String, "Recording the message was recorded in.")
    seq = Column(pl.Int64, "Order of arrival within the recording.")
    index = Column(pl.UInt32, "Position in a JSON-RPC batch; 0 otherwise.")
    batch = Column(pl.Boolean, "Whether the message came in a JSON-RPC batch.")
    session = Column(pl.String, "Session it belongs to; see `calls.session`.")
    dir = Column(pl.String, "`c2s` (client to server) or `s2c`.")
    scope = Column(pl.String, "HTTP exchange; null on a pipe.")
    at = Column(TIME, "When its last byte arrived.")
    bytes = Column(pl.Int64, "Length on the wire; of a batch member: of the whole batch.", "bytes")
    kind = Column(pl.String, "`request`, `notification`, `result`, `error` or `invalid`.")
    method = Column(pl.String, "Method of a request or notification.")
    request_id = Column(pl.String, "JSON text of `id` as on the wire; null where absent.")
    call_id = Column(pl.String, "Call that it asks, answers, cancels or reports progress of.")
    match = Column(
        pl.String,
        "How a reply found its call: `exact`, `loose` (by value only), `late`, "
        "`second`, `replay`, `orphan`; null for other kinds.",
    )
    file = Column(pl.String, "Transcript file.")
    line = Column(pl.Int64, "Line in the file, from 1.")
