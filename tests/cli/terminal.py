"""Writes what a terminal shows, at two widths, as golden files.

python -m tests.cli.terminal      writes them anew
"""

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import mcptally as mt
from mcptally.analytics.views import displayed_columns
from mcptally.output import text_table
from tests import corpus

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 200)
ROWS = 6
# Questions that hardly depend on verdicts: a better rule should not change these tables.
ASKED = {
    "context_cost": {},
    "latency": {"min_calls": 20},
    "protocol_versions": {},
    "retry_loops": {"server": "filesystem"},
    "slowest_calls": {"tool": "git_status"},
    "tool_scores": {"server": "git"},
    "unused_tools": {},
}


Answers = dict[str, pa.Table]
"""The first rows of the answer to each question."""


def ask(store: mt.Store) -> Answers:
    """Ask the questions one after the other."""
    return {
        question: store.ask(question, **filters).limit(ROWS).to_arrow_table()
        for question, filters in ASKED.items()
    }


def session(answers: Answers, width: int) -> str:
    """The answers as a terminal of this width shows them."""
    parts = []
    for question, table in answers.items():
        filters = ASKED[question]
        flags = "".join(f" --{k.replace('_', '-')} {v}" for k, v in filters.items())
        text = text_table.text_table(table, displayed_columns(question), width=width)
        parts.append(f"$ mcptally query store {question}{flags} --limit {ROWS}\n{text}")
    return "\n".join(parts)


def main() -> int:
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "store"
        mt.score(corpus.SAMPLES, out=out)
        answers = ask(mt.open_store(out))
        for width in WIDTHS:
            path = GOLDEN / f"terminal-{width}.txt"
            path.write_text(session(answers, width), encoding="utf-8")
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
