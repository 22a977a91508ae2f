"""The tables of the sample traces as readable text, kept in tests/golden/.

python -m tests.pipeline.golden      writes them again; read the diff before you commit
"""

import sys
import tempfile
from pathlib import Path

import mcptally as mt

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "sample_traces"
FOLDER = Path(__file__).parent / "golden"

TABLES = {
    "calls": """
        SELECT left(recording, 13) AS recording, seq, index, dir, coalesce(tool, method) AS asked,
            request_id AS id, outcome, error_code AS code, verdict, reason, rule, hidden_rule,
            protocol_version || ' ' || protocol_source AS revision, input_schema_state AS input,
            output_schema_state AS output, definition_source AS defined, attempt, attempt_why,
            seed_classification || ' ' || seed_confidence AS seed,
            inspector_classification || ' ' || inspector_confidence AS inspector
        FROM calls JOIN (
            SELECT call_id, COLUMNS('^(seed|inspector)_(classification|confidence)$')
            FROM seed_scores
        ) USING (call_id)
        WHERE parse_filename(file) = ? ORDER BY calls.recording, seq, index, dir
    """,
    "messages": """
        SELECT m.server AS server, dir, kind, method, match,
            count(*) AS messages, sum(bytes) AS bytes
        FROM messages JOIN recordings m USING (recording) WHERE parse_filename(file) = ?
        GROUP BY ALL ORDER BY ALL
    """,
    "findings": """
        SELECT rule, severity, about, tool, count(*) AS findings, min(message) AS message
        FROM findings WHERE parse_filename(file) = ? GROUP BY ALL ORDER BY ALL
    """,
    "recordings": """
        SELECT left(recording, 13) AS recording, server, transport, server_name, server_version,
            client, protocol_versions, sessions, events, messages, calls, tool_calls, unanswered,
            raws, stderr_lines, exchanges, "end", close_reason, exit_code, signal
        FROM recordings WHERE parse_filename(files[1]) = ? ORDER BY recordings.recording
    """,
}


def render(store: mt.Store, name: str) -> str:
    """Return the golden text of one sample trace."""
    parts = []
    for table, sql in TABLES.items():
        rows = store.sql(sql, params=[name])
        lines = [" | ".join(rows.columns)]
        lines += [" | ".join("" if v is None else str(v) for v in row) for row in rows.fetchall()]
        parts.append(f"# {table}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def rendered(store: mt.Store) -> dict[str, str]:
    """Golden text of every sample trace, by file name."""
    names = sorted(p.name for p in TRACES.rglob("*.jsonl*"))
    return {name: render(store, name) for name in names}


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        mt.score([TRACES], out=Path(folder) / "store")
        texts = rendered(mt.open_store(Path(folder) / "store"))
    for old in FOLDER.glob("*.txt"):
        if old.stem not in texts:
            old.unlink()
    for name, text in texts.items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
    print(f"{len(texts)} golden files written; read the diff")
    return 0


if __name__ == "__main__":
    sys.exit(main())
