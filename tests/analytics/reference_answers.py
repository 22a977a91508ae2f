"""Reference answers of the predefined questions in plain Python, from the rows of the tables.

Each function takes the tables as lists of rows and yields rows of the answer. Only the columns that
it yields are compared, in any order.
"""

import itertools
import re
import statistics
from collections import defaultdict

FAILED = {"hidden_error", "tool_error", "protocol_error", "timeout", "no_response"}


def groups(rows, *keys):
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def of_each(rows, *keys):
    """Yield the values of the keys as a row, with the rows that have them."""
    for values, same in groups(rows, *keys).items():
        yield dict(zip(keys, values, strict=True)), same


def quantile(values, q):
    """The quantile with linear interpolation."""
    values = sorted(values)
    place = (len(values) - 1) * q
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def of_tools(tables):
    return [
        row
        for row in tables["calls"]
        if row["method"] == "tools/call" and row["dir"] == "c2s" and row["tool"] is not None
    ]


def answered(tables):
    """Yield each tool with its calls that have a latency."""
    calls = [row for row in of_tools(tables) if row["latency_ms"] is not None]
    return of_each(calls, "server", "tool")


def distinct(rows, key):
    return len({row[key] for row in rows} - {None})


def failed(rows):
    return sum(row["outcome"] in FAILED for row in rows)


def count(rows, **value):
    """The number of rows with this value of a column."""
    [(key, wanted)] = value.items()
    return sum(row[key] == wanted for row in rows)


def slowest_calls(tables):
    for tool, rows in answered(tables):
        middle = statistics.median(row["latency_ms"] for row in rows)
        rows.sort(key=lambda row: (-row["latency_ms"], row["call_id"]))
        for rank, row in enumerate(rows[:10], 1):
            took = row["latency_ms"]
            about = {"rank": rank, "call_id": row["call_id"], "calls": len(rows)}
            yield tool | about | {"latency_ms": took, "times_median": took / middle}


def latency(tables):
    for tool, rows in answered(tables):
        times = [row["latency_ms"] for row in rows]
        yield (
            tool
            | {"calls": len(rows), "sessions": distinct(rows, "session")}
            | {
                "latency_p50_ms": quantile(times, 0.5),
                "latency_p95_ms": quantile(times, 0.95),
                "latency_p99_ms": quantile(times, 0.99),
                "latency_max_ms": max(times),
            }
        )


def latency_histogram(tables):
    """Bins, named by their bounds: two per doubling, starting at one millisecond."""
    ends = [2 ** (half / 2) for half in range(-20, 80)]
    for tool, rows in answered(tables):
        for number, (low, high) in enumerate(itertools.pairwise(ends), -20):
            calls = sum(low <= max(row["latency_ms"], 0.001) < high for row in rows)
            if calls:
                bounds = {"bin": number, "from_ms": low, "to_ms": high}
                yield tool | bounds | {"calls": calls, "share": calls / len(rows)}


def drift(tables):
    used = groups(of_tools(tables), "server", "tool", "definition")
    for row in tables["tools"]:
        if row["previous"] is not None:
            place = row["server"], row["tool"]
            after = used[*place, row["definition"]]
            yield {name: row[name] for name in ("server", "tool", "definition", "drift")} | {
                "calls_before": len(used[*place, row["previous"]]),
                "calls": len(after),
                "failed": failed(after),
                "tool_failures": count(after, verdict="tool_failure"),
            }


def context_cost(tables):
    listed = groups(tables["tools"], "server", "tool")
    called = groups(of_tools(tables), "server", "tool")
    costs = {}
    for place in listed.keys() | called.keys():
        tokens = [row["response_tokens"] for row in called.get(place, ())]
        tokens = [number for number in tokens if number is not None]
        costs[place] = {
            "listed_tokens": sum(r["tokens"] * r["sessions"] for r in listed.get(place, ())),
            "response_tokens_total": sum(tokens),
            "calls": len(called.get(place, ())),
            "response_tokens_p95": quantile(tokens, 0.95) if tokens else None,
        }
    totals = defaultdict(int)
    for (server, _), cost in costs.items():
        totals[server] += cost["listed_tokens"] + cost["response_tokens_total"]
    for (server, tool), cost in costs.items():
        total = cost["listed_tokens"] + cost["response_tokens_total"]
        share = total / totals[server] if totals[server] else None
        yield {"server": server, "tool": tool, "total_tokens": total, "total_rate": share, **cost}


def unused_tools(tables):
    called = groups(of_tools(tables), "server", "tool")
    for tool, rows in of_each(tables["tools"], "server", "tool"):
        if (tool["server"], tool["tool"]) not in called:
            yield tool | {
                "listed_tokens": sum(row["tokens"] * row["sessions"] for row in rows),
                "server_calls": count(of_tools(tables), server=tool["server"]),
            }


def retry_loops(tables):
    for tool, rows in of_each(of_tools(tables), "server", "tool"):
        chains = [
            sorted(chain, key=lambda row: (row["attempt"], row["requested_at"], row["call_id"]))
            for chain in groups(rows, "attempt_of").values()
            if count(chain, attempt_why="retry")
        ]
        if chains:
            calls = [row for chain in chains for row in chain]
            wasted = [row for row in calls if row["outcome"] != "ok"]
            recovered = sum(chain[-1]["outcome"] == "ok" for chain in chains)
            yield tool | {
                "calls": len(calls),
                "retried_calls": len(chains),
                "loops": sum(len(chain) > 2 for chain in chains),
                "retries": count(calls, attempt_why="retry"),
                "longest": max(map(len, chains)),
                "recovered_calls": recovered,
                "recovered_rate": recovered / len(chains),
                "wasted_tokens": sum(
                    row["request_bytes"] // 4 + (row["response_tokens"] or 0) for row in wasted
                ),
            }


def repeated_failures(tables):
    told = [row for row in of_tools(tables) if row["arguments"] is not None]
    for tool, rows in of_each(told, "server", "tool"):
        warned = []
        for same in groups(rows, "arguments").values():
            same.sort(key=lambda r: (r["requested_at"], r["recording"], r["seq"], r["index"]))
            for earlier, later in itertools.pairwise(same):
                if earlier["outcome"] in {"tool_error", "hidden_error", "protocol_error"}:
                    warned.append(later)
        warnings = {"warned_of": failed(warned), "warned_in_vain": count(warned, outcome="ok")}
        if any(warnings.values()):
            counts = {"calls": len(rows), "failed": failed(rows), "ok": count(rows, outcome="ok")}
            yield tool | counts | warnings


def schema_violations(tables):
    """Grouped by place; the question groups by error as well."""
    found = defaultdict(list)
    bad = {"invalid", "unusable_schema", "missing_output"}
    for row in tables["calls"]:
        for side in ("input", "output"):
            state = row[f"{side}_schema_state"]
            if row["dir"] == "c2s" and state in bad:
                path = row[f"{side}_schema_path"]
                path = path and re.sub(r"/\d+", "/*", path, flags=re.ASCII)
                found[row["server"], row["tool"], side, state, path].append(row)
    keys = ("server", "tool", "side", "state", "path")
    for place, rows in found.items():
        counts = {"calls": len(rows), "accepted": count(rows, outcome="ok")}
        yield dict(zip(keys, place, strict=True)) | counts


def hidden_errors(tables):
    every = groups(of_tools(tables), "server", "tool")
    hidden = [row for row in of_tools(tables) if row["outcome"] == "hidden_error"]
    for place, rows in of_each(hidden, "server", "tool", "hidden_rule"):
        total = len(every[place["server"], place["tool"]])
        yield place | {
            "calls": total,
            "hidden_errors": len(rows),
            "hidden_error_rate": len(rows) / total,
            "sessions": distinct(rows, "session"),
            "call_id": min(row["call_id"] for row in rows),
        }


def to_tools(rows):
    """The calls to tools that are not continued by another one."""
    return [row for row in rows if row["method"] == "tools/call" and row["continued_by"] is None]


def sessions(tables):
    for place, rows in of_each(tables["calls"], "session", "recording"):
        started = min(row["requested_at"] for row in rows)
        ended = max(r["answered_at"] or r["cancelled_at"] or r["requested_at"] for r in rows)
        yield place | {
            "server": rows[0]["server"],
            "started_at": started,
            "seconds": (ended - started).total_seconds(),
            "calls": len(rows),
            "tool_calls": count(to_tools(rows), dir="c2s"),
            "tools": distinct(rows, "tool"),
            "failed": failed(rows),
            "tool_failures": count(rows, verdict="tool_failure"),
            "retries": count(rows, attempt_why="retry"),
        }


def clients(tables):
    asked = [row for row in tables["calls"] if row["dir"] == "c2s"]
    for client, rows in of_each(asked, "client", "client_version"):
        tools = to_tools(rows)
        ended = [row for row in tools if row["outcome"] in FAILED | {"ok"}]
        ok = count(tools, outcome="ok")
        yield client | {
            "servers": distinct(rows, "server"),
            "sessions": distinct(rows, "session"),
            "calls": len(rows),
            "tool_calls": len(tools),
            "ok": ok,
            "failed": len(ended) - ok,
            "success_rate": ok / len(ended) if ended else None,
            "cancelled": count(rows, outcome="cancelled"),
            "protocol_versions": sorted({row["protocol_version"] for row in rows} - {None}) or None,
        }


def protocol_versions(tables):
    calls = {row["call_id"]: row for row in tables["calls"]}
    broken = [row for row in tables["findings"] if row["rule"].startswith("protocol.")]
    broken = [row for row in broken if row["severity"] == "error" and row["call_id"] in calls]
    broken = groups((calls[r["call_id"]] for r in broken), "protocol_version", "protocol_source")
    for place, rows in of_each(tables["calls"], "protocol_version", "protocol_source"):
        yield place | {
            "servers": distinct(rows, "server"),
            "sessions": distinct(rows, "session"),
            "calls": len(rows),
            "protocol_errors": count(rows, outcome="protocol_error"),
            "unanswered": sum(row["outcome"] in {"timeout", "no_response"} for row in rows),
            "finding_errors": len(broken[tuple(place.values())]),
        }


def finding_counts(tables):
    for place, rows in of_each(tables["findings"], "rule", "severity", "about"):
        yield place | {
            "findings": len(rows),
            "servers": distinct(rows, "server"),
            "recordings": distinct(rows, "recording"),
            "calls": distinct(rows, "call_id"),
        }


ANSWERS = (
    clients,
    context_cost,
    drift,
    finding_counts,
    hidden_errors,
    latency,
    latency_histogram,
    protocol_versions,
    repeated_failures,
    retry_loops,
    schema_violations,
    sessions,
    slowest_calls,
    unused_tools,
)
