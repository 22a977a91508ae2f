"""Compares the ranking of `priorities` with archives whose problems were ranked by hand.

`python -m tests.benchmarks ranking [--rows] [NAME…]` scores the archives of
`tests/analytics/ranked_archives.toml` and prints, for each and together: important problems within
the first ten rows, with the right fault; rows among the first five that are a ranked problem; rows
among the first five whose problem stands above them; and rows whose fault is right. Archives of the
corpus that `MCPTALLY_CORPUS` names are left out if it is not set. Archives with a `first_look` are
also counted separately.
"""

import argparse
import os
import re
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import mcptally as mt
from mcptally.analytics import explanation
from mcptally.analytics.explain import explain_calls
from mcptally.analytics.store import Store
from mcptally.output.html.answers import Asked
from mcptally.output.overview.answer import answer_of
from mcptally.tables.values import claim
from tests import corpus

ARCHIVES: Final = corpus.ROOT / "tests" / "analytics" / "ranked_archives.toml"
_CALLS: Final = """
    SELECT a.cause, c.call_id, coalesce(c.server, ''), c.outcome,
        concat_ws(' ', c.error_text, left(c.response, 4000), c.stderr_error)
    FROM affected_calls a JOIN calls c USING (call_id)
"""

Row: TypeAlias = Mapping[str, Any]
Problem: TypeAlias = Mapping[str, Any]


def archives() -> list[dict[str, Any]]:
    """The archives that were ranked, with their problems."""
    found: list[dict[str, Any]] = tomllib.loads(ARCHIVES.read_text())["archive"]
    return found


def paths(archive: Mapping[str, Any]) -> list[Path] | None:
    """Return the recordings of an archive; None if they are in a corpus that is not available."""
    found = []
    for name in archive["recordings"]:
        if name == "samples":
            found.append(corpus.SAMPLES)
        elif name.startswith("traffic/"):
            if not (folder := os.environ.get("MCPTALLY_CORPUS")):
                return None
            found.append(Path(folder) / f"{name}.jsonl.zst")
        else:
            found.append(corpus.ROOT / "tests" / f"{name}.jsonl.zst")
    return found


def ranked(asked: Asked) -> list[dict[str, Any]]:
    """The rows of `priorities`."""
    return asked("priorities").to_dicts()


def measure(
    store: Store, rows: Sequence[Row], problems: Sequence[Problem]
) -> tuple[Counter[str], list[str]]:
    """Return an archive's counts for these ranked rows, and a line per row and missed problem."""
    calls = store.sql(_CALLS).fetchall()
    places = [_places(problem, rows, calls) for problem in problems]
    mains = [_main(row, places) for row in rows]
    counts: Counter[str] = Counter()
    lines = []
    for problem, place in zip(problems, places, strict=True):
        if not problem.get("important"):
            continue
        found = [row for row in rows[:10] if _holds(row, place)]
        counts["important"] += 1
        counts["found"] += bool(found)
        counts["found with the fault"] += any(row["fault"] in problem["fault"] for row in found)
        if not found:
            lines.append(f"   missed: {problem['server']} {_about(problem)}")
    for number, (row, main) in enumerate(zip(rows[:10], mains, strict=False)):
        if number < 5:
            counts["first five"] += 1
            counts["ranked"] += main is not None
            counts["repeats"] += main is not None and main in mains[:number]
        right = None
        if main is not None:
            right = row["fault"] in problems[main]["fault"]
            counts["with a problem"] += 1
            counts["fault right"] += right
        mark = "?" if right is None else "+" if right else "-"
        repeat = " repeat" if main is not None and main in mains[:number] else ""
        lines.append(
            f"{mark} {number + 1:2} {row['kind']:14} {','.join(map(str, row['servers']))[:34]:34} "
            f"{row['fault'] or '?'} {row['affected']} of {row['calls']}{repeat} | "
            f"{(row['message'] or row['template'] or '')[:70]!r}"
        )
    return counts, lines


_OF_FAILED_STARTS: Final = """
    SELECT server, min(call_id) FROM calls JOIN recordings USING (recording, server)
    WHERE start IN ('failed', 'unanswered') AND start_failure IS NOT NULL
        AND outcome = 'no_response'
    GROUP BY server
"""


def disagreements(asked: Asked, rows: Iterable[Row]) -> list[str]:
    """What `show` says of the example of a row, or of a failed start, if the row says otherwise."""
    store = asked.store
    of_starts = dict(store.sql(_OF_FAILED_STARTS).fetchall())
    examples = [
        (row, of_starts.get(row["servers"][0]) if "start" in row["kind"] else row["call_id"])
        for row in rows
    ]
    examples = [(row, call_id) for row, call_id in examples if call_id is not None]
    shown = explain_calls(store, [call_id for _, call_id in examples], longest=100)
    lines = answer_of(asked, most=0)["findings"]
    found = []
    for row, call_id in examples:
        text, call = explanation.text(shown[call_id]), shown[call_id].call
        alone = re.search(r"^  reason \S+, fault: (\w+)", text, re.MULTILINE)
        said = alone[1] if alone else None
        screen = " ".join(lines[row["rank"] - 1]["lines"])
        same = {
            "server": call["server"] in row["servers"],
            "tool": call["tool"] in [*(row["tools"] or ()), *(row["unlisted"] or ()), None],
            "message": row["template"] in (call["template"], f"(no text: {call['outcome']})", None),
            "unmarked": row["kind"] != "unmarked" or call["outcome"] == "hidden_error",
        }
        if row["cause"] is not None:
            calls = re.search(r"^Problem: (?:this and ([\d,]+)|no) other call", text, re.MULTILINE)
            same["calls"] = calls and (calls[1] or "0") == f"{row['affected'] - 1:,}"
            same["claim"] = f"fault: {claim(row)}\n" in text
            same["screen"] = claim(row) in screen
            same["verdict"] = said == row["fault"] or row["fault"] is None
        elif row["kind"] == "contract":
            same["schema"] = call["output_schema_state"] in ("invalid", "missing_output")
        else:
            same["fault"] = said == row["fault"] and f"fault: {row['fault']}" in screen
        wrong = [name for name, is_same in same.items() if not is_same]
        found += [f"{row['rank']} {row['kind']} {row['servers']}: {wrong}"] if wrong else []
    return found


def _places(
    problem: Problem, rows: Iterable[Row], calls: Iterable[tuple[Any, ...]]
) -> Counter[str]:
    """Map each rank or cause to the problem's calls; the key `all` has their number."""
    places: Counter[str] = Counter()
    server = re.compile(problem["server"])
    if kinds := problem.get("kind"):
        for row in rows:
            if row["kind"] in kinds and any(server.fullmatch(str(s)) for s in row["servers"]):
                places[f"rank {row['rank']}"] += 1
                places["all"] += 1
    if not kinds or "outcome" in problem:
        text = re.compile(problem.get("text", ""))
        for cause, _, name, outcome, said in calls:
            same = outcome == problem.get("outcome", outcome) and server.fullmatch(name)
            if same and text.search(said):
                places[cause] += 1
                places["all"] += 1
    return places


def _holds(row: Row, place: Counter[str]) -> bool:
    """Return whether a row has at least half of a problem's calls, or its server's lifecycle."""
    if place[f"rank {row['rank']}"]:
        return True
    return bool(row["cause"]) and place["all"] > 0 and 2 * place[row["cause"]] >= place["all"]


def _main(row: Row, places: list[Counter[str]]) -> int | None:
    """Return the problem that has most of a row's calls, if it has at least a quarter of them."""
    lives = [n for n, place in enumerate(places) if place[f"rank {row['rank']}"]]
    if lives or not row["cause"]:
        return next(iter(lives), None)
    most, problem = max((place[row["cause"]], -n) for n, place in enumerate(places))
    return -problem if 4 * most >= row["affected"] else None


def _about(problem: Problem) -> str:
    return str(problem.get("text") or problem.get("kind") or problem.get("outcome"))


def shares(counts: Counter[str]) -> str:
    """The published numbers in one line."""
    return (
        f"important problems in the first ten {counts['found']} of {counts['important']}, with the "
        f"fault {counts['found with the fault']}; first five that are ranked {counts['ranked']} of "
        f"{counts['first five']}, repeats {counts['repeats']}; "
        f"fault right {counts['fault right']} of {counts['with a problem']}"
    )


def main() -> None:
    """Print the numbers of each archive and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of archives")
    parser.add_argument("--rows", action="store_true", help="print the rows and what was missed")
    options = parser.parse_args()
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for archive in archives():
        if options.names and not any(name in archive["name"] for name in options.names):
            continue
        if (recordings := paths(archive)) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            mt.score(recordings, out=Path(folder) / "store", jobs=1)
            asked = Asked(mt.open_store(Path(folder) / "store"))
            rows = ranked(asked)
            counts, lines = measure(asked.store, rows, archive["problem"])
            lines += [f"   show disagrees: {line}" for line in disagreements(asked, rows)]
        for group in {"all", archive.get("first_look", "all")}:
            totals[group] += counts
        print(f"{archive['name']}: {shares(counts)}")
        if options.rows:
            print("\n".join(lines))
    for group, total in totals.items():
        print(f"{group}: {shares(total)}")


if __name__ == "__main__":
    main()
