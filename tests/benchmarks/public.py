"""Print the tables of docs/explanation/public-servers.md and faults.md from a store.

    python -m tests.benchmarks public STORE [--index INDEX]

INDEX is the file `index.json` of the corpus, which says for each server its package and language:
ecosystems are then languages, and rows are packages. Without it, an ecosystem is the program that
starts a server, as in the question `fault_categories`, and rows are servers.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mcptally as mt

LANGUAGES = {"py": "Python", "ts": "TypeScript", "go": "Go"}

FAULTS = """
WITH named(server, package, ecosystem) AS ({named}),
faults AS (SELECT f.*, n.ecosystem AS place, n.package FROM _faults f JOIN named n USING (server)),
groups AS (
    SELECT DISTINCT ecosystem, server_hash, session_hash, package
    FROM (
        SELECT place AS ecosystem, * EXCLUDE (place) FROM faults
        UNION ALL
        SELECT 'all', * EXCLUDE (place) FROM faults
    )
),
categories AS (SELECT DISTINCT category FROM fault_categories),
counts AS (
    SELECT g.ecosystem, c.category, g.package, count(*)::DOUBLE AS n,
        count(f.category)::DOUBLE AS y
    FROM groups g
    CROSS JOIN categories c
    LEFT JOIN (SELECT DISTINCT server_hash, session_hash, category FROM faults) f
        ON f.server_hash = g.server_hash AND f.session_hash = g.session_hash
        AND f.category = c.category
    GROUP BY g.ecosystem, c.category, g.package
)
SELECT ecosystem, category, sum(y)::BIGINT AS sessions, sum(n)::BIGINT AS of_sessions,
    count(*) FILTER (y > 0) AS packages, count(*) AS of_packages, sum(y) / sum(n) AS share,
    _interval(_moments(n, y)).low AS low, _interval(_moments(n, y)).high AS high
FROM counts
GROUP BY ecosystem, category
"""

SCORES = """
WITH named(server, package, ecosystem) AS ({named}),
counts AS (
    SELECT n.package, n.ecosystem, s.session, sum(call_n) AS call_n, sum(ended_n) AS ended_n,
        sum(success_y) AS success_y, sum(failure_y) AS failure_y, sum(refusal_y) AS refusal_y,
        sum(infrastructure_y) AS infrastructure_y, sum(ambiguous_y) AS ambiguous_y,
        sum(hidden_y) AS hidden_y, sum(input_n) AS input_n, sum(input_y) AS input_y
    FROM _session_counts('server') s
    JOIN named n USING (server)
    WHERE level = 'server'
    GROUP BY n.package, n.ecosystem, s.session
)
SELECT {key} AS name, any_value(ecosystem) AS ecosystem, count(DISTINCT package) AS packages,
    count(*) AS sessions, sum(call_n)::BIGINT AS calls,
    {rates}
FROM counts
GROUP BY {key}
ORDER BY lower(name)
"""

RATES = {
    "success": ("ended_n", "success_y"),
    "refused": ("call_n", "refusal_y"),
    "tool_failure": ("call_n", "failure_y"),
    "infrastructure": ("call_n", "infrastructure_y"),
    "ambiguous": ("call_n", "ambiguous_y"),
    "hidden": ("call_n", "hidden_y"),
    "invalid": ("input_n", "input_y"),
}


def names_of(store: mt.Store, index: Path | None) -> list[tuple[str, str, str]]:
    """Server, package and ecosystem of each server."""
    if index is None:
        rows = store.sql("""
            SELECT server, server, _ecosystem(any_value(command), any_value(transport))
            FROM calls WHERE server IS NOT NULL GROUP BY server
        """)
        return rows.fetchall()
    return [
        (
            row["server"],
            row["package"].split(" ")[0].split("==")[0],
            LANGUAGES[row["language"]],
        )
        for row in json.loads(index.read_text(encoding="utf-8"))
    ]


def _values(rows: Sequence[tuple[str, ...]]) -> str:
    quoted = (
        "(" + ", ".join("'" + value.replace("'", "''") + "'" for value in row) + ")" for row in rows
    )
    return "VALUES " + ", ".join(quoted)


def _share(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None or low is None or high is None:
        return ""
    return f"{mean:.1%} ({100 * low:.0f} to {100 * high:.0f})"


def faults_table(store: mt.Store, named: str) -> str:
    """Share of sessions with a fault of each category, by ecosystem."""
    rows = store.sql(FAULTS.format(named=named)).pl().to_dicts()
    published = {
        row["category"]: row["published_share"]
        for row in store.ask("fault_categories").pl().to_dicts()
    }
    ecosystems = sorted({row["ecosystem"] for row in rows} - {"all"})
    shown = ["all", *ecosystems]
    cells = {(row["category"], row["ecosystem"]): row for row in rows}
    head = [
        f"{place} ({one['of_sessions']} sessions, {one['of_packages']} packages)"
        for place in shown
        for one in [cells["Tool", place]]
    ]
    lines = [
        f"| category | threads | packages | {' | '.join(head)} |",
        f"|---|---:|---:|{'---|' * len(shown)}",
    ]
    for category, share in published.items():
        row = cells[category, "all"]
        values = [_share(*(cells[category, p][k] for k in ("share", "low", "high"))) for p in shown]
        lines.append(
            f"| {category} | {'' if share is None else f'{share:.1%}'} | {row['packages']} |"
            f" {' | '.join(values)} |"
        )
    return "\n".join(lines)


def scores(store: mt.Store, named: str, key: str) -> list[dict[str, Any]]:
    """Rates with their intervals per package or ecosystem."""
    rates = ",\n    ".join(
        f"sum({y}) / nullif(sum({n}), 0) AS {name}, {interval}.low AS {name}_low,"
        f" {interval}.high AS {name}_high"
        for name, (n, y) in RATES.items()
        for interval in [f"_interval(_moments({n}, {y}))"]
    )
    return store.sql(SCORES.format(named=named, key=key, rates=rates)).pl().to_dicts()


def scores_table(rows: list[dict[str, Any]], *, packages: bool) -> str:
    """Rates as a table in Markdown."""
    columns = ["success", "refused", "tool_failure", "infrastructure", "hidden", "invalid"]
    head = ["ok", "refused", "tool failure", "infrastructure", "hidden error", "invalid arguments"]
    first = "package | ecosystem" if packages else "ecosystem | packages"
    lines = [
        f"| {first} | sessions | calls | {' | '.join(head)} |",
        f"|---|---|---:|---:|{'---|' * len(head)}",
    ]
    for row in rows:
        values = [_share(row[c], row[f"{c}_low"], row[f"{c}_high"]) for c in columns]
        second = row["ecosystem"] if packages else row["packages"]
        lines.append(
            f"| {row['name']} | {second} | {row['sessions']} | {row['calls']:,} |"
            f" {' | '.join(values)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--index", type=Path)
    args = parser.parse_args()
    store = mt.open_store(args.store)
    named = _values(names_of(store, args.index))
    print(faults_table(store, named), end="\n\n")
    print(scores_table(scores(store, named, "ecosystem"), packages=False), end="\n\n")
    print(scores_table(scores(store, named, "package"), packages=True))


if __name__ == "__main__":
    main()
