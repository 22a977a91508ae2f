"""Provides a view's rows as a file to download."""

import io
from typing import Final

from starlette.responses import Response

from mcptally.errors import UsageError
from mcptally.output.explore.answers import ROWS, Answers
from mcptally.output.explore.table import DOWNLOADS, Answered, View
from mcptally.output.formats.writers import WRITERS

_KINDS: Final = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def response(answers: Answers, view: View, kind: str) -> Response:
    """Return up to `ROWS` rows of a view, with the columns shown on its page.

    Raises:
        UsageError: there is no such format.
        QueryError: the view cannot be read.
    """
    if kind not in DOWNLOADS:
        raise UsageError(f"there is no download as {kind!r}; there are: {', '.join(DOWNLOADS)}")
    answered = Answered(answers, view)
    rows = answered.rows(answered.columns, ROWS).to_arrow()
    file = io.BytesIO()
    WRITERS[kind](iter(rows.to_batches()), rows.schema, file)
    name = f'attachment; filename="{view.source}.{kind}"'
    return Response(file.getvalue(), media_type=_KINDS[kind], headers={"Content-Disposition": name})
