"""The table `ui_errors`."""

import polars as pl

from mcptally.tables.declaration import Column, Table


class UiErrors(Table):
    """One row per error that a UI test run lists."""

    name = "ui_errors"
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(pl.String, "Call whose result contains the run.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    run_id = Column(pl.String, "Run that the error belongs to.")
    position = Column(pl.UInt32, "Position in `errors`, from 0.")
    type = Column(pl.String, "`validation`, `console`, `network`, `timeout` or `accessibility`.")
    code = Column(pl.String, "Error code, for example `E_NETWORK`.")
    code_known = Column(pl.Boolean, "Whether the seed program or its documents define the code.")
    selector = Column(pl.String, "CSS selector.")
    message = Column(pl.String, "Message.")
    evidence = Column(pl.String, "JSON text of the evidence.")
    timestamp = Column(pl.String, "Time of the error, as the run reports it.")
