"""Caches answers, so that each is computed only once, even if other questions read it."""

from typing import Final

from mcptally.analytics import views
from mcptally.analytics.answer import Answer, as_answer
from mcptally.analytics.connections import Connections, as_query_errors


class KeptAnswers:
    """A cache of unfiltered answers about a store, as it was when the cache was created.

    Answers are stored as tables in a separate connection, where other questions read them.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections: Final = connections
        self._connection, self._created = connections.new()

    def ask(self, question: str) -> Answer:
        """Return the answer to a question, computing it if it is not in the cache.

        Raises:
            StoreError: the store lacks a column, because an older version wrote it.
            QueryError: DuckDB cannot compute the answer.
        """
        texts = views.texts_of(question)
        new = {name: text for name, text in texts.items() if name not in self._created}
        with as_query_errors(self._connection), self._connections.reporting_the_version():
            new = views.without_filters(self._connection, new)
            views.create_questions(self._connection, new, computed=True)
            self._created.update(new)
            return as_answer(self._connection.sql(f'FROM "{question}"', alias=question))
