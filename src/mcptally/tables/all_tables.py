"""Lists all tables that a store contains."""

from typing import Final

from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Table
from mcptally.tables.findings import Findings
from mcptally.tables.input_requests import InputRequests
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.seed_scores import SeedScores
from mcptally.tables.tools import Tools
from mcptally.tables.ui_tests import UiErrors, UiRuns, UiSteps
from mcptally.tables.usage import Usage
from mcptally.tables.validations import Validations

TABLES: Final[tuple[type[Table], ...]] = (
    Calls,
    Messages,
    Findings,
    Tools,
    Recordings,
    SeedScores,
    Validations,
    InputRequests,
    UiRuns,
    UiSteps,
    UiErrors,
    Usage,
)
"""All tables of a store, as classes."""
