"""mcptally: analyze recorded MCP traffic to find out which tools and servers are reliable.

    import mcptally as mt

    mt.score(["traces"], out="store")
    store = mt.open_store("store")
    store.ask("tool_scores").pl()

Public names are imported on first use, so that the recorder does not import polars, pyarrow or
DuckDB.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcptally.analytics.answer import Answer
    from mcptally.analytics.explanation import Explanation
    from mcptally.analytics.store import Store, open_store
    from mcptally.importers import import_logs
    from mcptally.maintenance.merge import merge_stores
    from mcptally.output.html import report
    from mcptally.pipeline.run import score
    from mcptally.seeds.inspector.model import (
        BusinessDecision,
        ResponseMetadata,
        ScenarioResult,
        ScenarioStatus,
        ScenarioSummary,
        ValidationContext,
        ValidationResult,
    )
    from mcptally.seeds.inspector.single import (
        business_decision,
        is_business_error,
        overall_confidence,
        response_metadata,
        scenario_status,
        validate_response,
    )
    from mcptally.seeds.redmine.content import assert_tool_response
    from mcptally.transcript.check import check
    from mcptally.transcript.redact import redact

_HOME: Final[dict[str, str]] = {
    name: f"mcptally.{module}"
    for module, names in {
        "analytics.answer": "Answer",
        "analytics.explanation": "Explanation",
        "analytics.store": "Store open_store",
        "importers": "import_logs",
        "maintenance.merge": "merge_stores",
        "output.html": "report",
        "pipeline.run": "score",
        "seeds.inspector.model": "BusinessDecision ResponseMetadata ScenarioResult ScenarioStatus "
        "ScenarioSummary ValidationContext ValidationResult",
        "seeds.inspector.single": "business_decision is_business_error overall_confidence "
        "response_metadata scenario_status validate_response",
        "seeds.redmine.content": "assert_tool_response",
        "transcript.check": "check",
        "transcript.redact": "redact",
    }.items()
    for name in names.split()
}
"""Maps public names to the modules that define them. No module directly in this package may have
the name of a public function, because importing the module would replace the function."""

__all__ = [
    "Answer",
    "BusinessDecision",
    "Explanation",
    "ResponseMetadata",
    "ScenarioResult",
    "ScenarioStatus",
    "ScenarioSummary",
    "Store",
    "ValidationContext",
    "ValidationResult",
    "assert_tool_response",
    "business_decision",
    "check",
    "import_logs",
    "is_business_error",
    "merge_stores",
    "open_store",
    "overall_confidence",
    "redact",
    "report",
    "response_metadata",
    "scenario_status",
    "score",
    "validate_response",
]

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            value = getattr(importlib.import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("mcptally."):
                raise
            from mcptally.errors import NOT_IN_RECORDER  # noqa: PLC0415  (only for this message)

            raise ImportError(NOT_IN_RECORDER.format(f"mcptally.{name}"), name=error.name) from None
        globals()[name] = value
        return value
    message = f"module 'mcptally' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
