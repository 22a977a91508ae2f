"""Declares the table `ui_errors`."""

from mcptally.tables.column_types import BOOLEAN, STRING, UINT32
from mcptally.tables.declaration import Column, Table


class UiErrors(Table):
    """One row per error listed in a UI test run."""

    name = "ui_errors"
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(STRING, "Call whose result contains the run.")
    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    tool = Column(STRING, "Tool that was called.")
    run_id = Column(STRING, "Run that the error belongs to.")
    position = Column(UINT32, "Position in `errors`, from 0.")
    type = Column(STRING, "`validation`, `console`, `network`, `timeout` or `accessibility`.")
    code = Column(STRING, "Error code, for example `E_NETWORK`.")
    code_known = Column(BOOLEAN, "Whether the seed program or its documents define the code.")
    selector = Column(STRING, "CSS selector.")
    message = Column(STRING, "Message.")
    evidence = Column(STRING, "JSON text of the evidence.")
    timestamp = Column(STRING, "Time of the error, as the run reports it.")
