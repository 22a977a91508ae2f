"""Declaration of the table `ui_errors`."""

import polars as pl

from mcptally.tables.declaration import Column, Table


class UiErrors(Table):
    """One row an error of a UI test run."""

    name = "ui_errors"
    meaning = "One row an error that a UI test run lists."
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(pl.String, "The call whose result holds it.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    run_id = Column(pl.String, "Run it belongs to.")
    position = Column(pl.UInt32, "Place in `errors`, from 0.")
    type = Column(pl.String, "`validation`, `console`, `network`, `timeout` or `accessibility`.")
    code = Column(pl.String, "Code of the error, as `E_NETWORK`.")
    code_known = Column(pl.Boolean, "Whether the program or its documents know the code.")
    selector = Column(pl.String, "CSS selector.")
    message = Column(pl.String, "Message.")
    evidence = Column(pl.String, "JSON text of the evidence.")
    timestamp = Column(pl.String, "When, as the run says it.")
