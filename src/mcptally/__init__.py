"""mcptally: find out which MCP tools and servers can be trusted.

    import mcptally as mt

    mt.score(["traces"], out="store")
    store = mt.open_store("store")
    store.ask("tool_scores").pl()

Public names load on first use, so that the recorder imports nothing columnar.
"""

import importlib
from typing import Any, Final

_HOME: Final[dict[str, str]] = {
    "score": "mcptally.pipeline",
    "Store": "mcptally.query",
    "open_store": "mcptally.query",
}
"""Public name → the module where it lives."""

__all__ = ["Store", "open_store", "score"]

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
