"""Declares the table `input_requests`."""

from mcptally.tables.column_types import STRING, TIME
from mcptally.tables.declaration import Column, Table


class InputRequests(Table):
    """One row per server request for input: from the user, the client's model, or its roots.

    Up to 2025-11-25, the server sends requests for input; from 2026-07-28 on, its results contain
    them.
    """

    name = "input_requests"
    key = ("recording", "call_id", "input_key")

    call_id = Column(STRING, "Call that the input is for; the request itself where none is known.")
    input_key = Column(STRING, "Key in `inputRequests`, or call id of the server's request.")
    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    tool = Column(STRING, "Tool of that call.")
    client = Column(STRING, "Name that the client reports.")
    method = Column(STRING, "`elicitation/create`, `sampling/createMessage` or `roots/list`.")
    mode = Column(STRING, "Of an elicitation: `form` or `url`.")
    action = Column(STRING, "Answer to an elicitation: `accept`, `decline` or `cancel`.")
    asked_at = Column(TIME, "When the input was asked for.")
    answered_at = Column(TIME, "When it came; null if it did not.")
