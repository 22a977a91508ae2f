"""mcptally: find out which MCP tools and servers can be trusted.

    import mcptally as mt

    mt.score(["traces"], out="store")
    store = mt.open_store("store")
    store.ask("tool_scores").pl()

Public names load on first use, so that the recorder imports nothing columnar.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcptally.combining import merge_stores
    from mcptally.contracts.content import assert_tool_response
    from mcptally.forgetting import forget
    from mcptally.imports import import_logs
    from mcptally.page import report
    from mcptally.pipeline import score
    from mcptally.query import Store, open_store
    from mcptally.seed.model import (
        BusinessDecision,
        ResponseMetadata,
        ScenarioResult,
        ScenarioStatus,
        ValidationContext,
        ValidationResult,
    )
    from mcptally.seed.single import (
        business_decision,
        is_business_error,
        overall_confidence,
        response_metadata,
        scenario_status,
        validate_response,
    )

_HOME: Final[dict[str, str]] = {
    "assert_tool_response": "mcptally.contracts.content",
    "BusinessDecision": "mcptally.seed.model",
    "ResponseMetadata": "mcptally.seed.model",
    "ScenarioResult": "mcptally.seed.model",
    "ScenarioStatus": "mcptally.seed.model",
    "Store": "mcptally.query",
    "ValidationContext": "mcptally.seed.model",
    "ValidationResult": "mcptally.seed.model",
    "business_decision": "mcptally.seed.single",
    "forget": "mcptally.forgetting",
    "import_logs": "mcptally.imports",
    "is_business_error": "mcptally.seed.single",
    "merge_stores": "mcptally.combining",
    "open_store": "mcptally.query",
    "overall_confidence": "mcptally.seed.single",
    "report": "mcptally.page",
    "response_metadata": "mcptally.seed.single",
    "scenario_status": "mcptally.seed.single",
    "score": "mcptally.pipeline",
    "validate_response": "mcptally.seed.single",
}
"""Public name → the module where it lives. No module of this package has a public name's name:
importing it would put the module in the name's place."""

__all__ = [
    "BusinessDecision",
    "ResponseMetadata",
    "ScenarioResult",
    "ScenarioStatus",
    "Store",
    "ValidationContext",
    "ValidationResult",
    "assert_tool_response",
    "business_decision",
    "forget",
    "import_logs",
    "is_business_error",
    "merge_stores",
    "open_store",
    "overall_confidence",
    "report",
    "response_metadata",
    "scenario_status",
    "score",
    "validate_response",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    message = f"module 'mcptally' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
