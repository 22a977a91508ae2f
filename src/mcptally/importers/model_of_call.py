"""Finds the language model that requested a call, from the surrounding spans or runs.

The span of a tool call does not name the model, but the spans of requests to the model do. Both
kinds of span are children of the same agent's span:

    invoke_agent
      chat                gen_ai.request.model
      execute_tool
"""

from typing import Final

_MAX_NODES: Final = 1_000_000
"""Maximum number of spans or runs that are remembered."""
_MAX_DEPTH: Final = 64
"""Maximum number of steps from a span or run to an ancestor."""


class ModelsOfCalls:
    """The tree of a file's spans or runs, with the models that they name."""

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._models: dict[str, str] = {}
        self._beneath: dict[str, str | None] | None = None

    def add(self, id_: str, parent: str | None, model: str | None) -> None:
        """Add a span or run; `model` is None if it names no model."""
        if len(self._parents) < _MAX_NODES:
            self._parents[id_] = parent
            if model is not None:
                self._models[id_] = model

    def of(self, id_: str) -> str | None:
        """Return the model that requested a call; None if unknown.

        The model is named by the call's span, or else by its nearest ancestor that names a model or
        has a descendant that names one. If an ancestor's descendants name several models, the model
        is unknown.
        """
        if self._beneath is None:
            self._beneath = self._models_beneath()
        return next(
            (self._beneath[each] for each in self._line(id_) if each in self._beneath), None
        )

    def _models_beneath(self) -> dict[str, str | None]:
        """Map spans that name a model, and their ancestors, to the model; None if ambiguous."""
        found: dict[str, str | None] = {}
        for id_, model in self._models.items():
            for each in self._line(id_):
                found[each] = model if found.get(each, model) == model else None
        return found | self._models

    def _line(self, id_: str) -> list[str]:
        """Return the ids of a span and its ancestors, nearest first.

        The last id may belong to a span that is not in the file.
        """
        line = [id_]
        while len(line) < _MAX_DEPTH and (parent := self._parents.get(line[-1])) is not None:
            line.append(parent)
        return line
