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


def distinct(rows, key):
    return len({row[key] for row in rows} - {None})


def slowest_calls(tables):
    answered = [row for row in of_tools(tables) if row["latency_ms"] is not None]
    for (server, tool), rows in groups(answered, "server", "tool").items():
        middle = statistics.median(row["latency_ms"] for row in rows)
        rows.sort(key=lambda row: (-row["latency_ms"], row["call_id"]))
        for rank, row in enumerate(rows[:10], 1):
            yield {
                "server": server,
                "tool": tool,
                "rank": rank,
                "call_id": row["call_id"],
                "latency_ms": row["latency_ms"],
                "times_median": row["latency_ms"] / middle,
                "calls": len(rows),
            }


def latency(tables):
    answered = [row for row in of_tools(tables) if row["latency_ms"] is not None]
    for (server, tool), rows in groups(answered, "server", "tool").items():
        times = [row["latency_ms"] for row in rows]
        yield {
            "server": server,
            "tool": tool,
            "calls": len(rows),
            "sessions": distinct(rows, "session"),
            "latency_p50_ms": quantile(times, 0.5),
            "latency_p95_ms": quantile(times, 0.95),
            "latency_p99_ms": quantile(times, 0.99),
            "latency_max_ms": max(times),
        }


def latency_histogram(tables):
    """Bins, named by their bounds: two per doubling, starting at one millisecond."""
    answered = [row for row in of_tools(tables) if row["latency_ms"] is not None]
    ends = [2 ** (half / 2) for half in range(-20, 80)]
    for (server, tool), rows in groups(answered, "server", "tool").items():
        for number, (low, high) in enumerate(itertools.pairwise(ends), -20):
            calls = sum(low <= max(row["latency_ms"], 0.001) < high for row in rows)
            if calls:
                yield {
                    "server": server,
                    "tool": tool,
                    "bin": number,
                    "from_ms": low,
                    "to_ms": high,
                    "calls": calls,
                    "share": calls / len(rows),
                }


def drift(tables):
    used = groups(of_tools(tables), "server", "tool", "definition")
    for row in tables["tools"]:
        if row["previous"] is None:
            continue
        place = row["server"], row["tool"]
        before, after = used[*place, row["previous"]], used[*place, row["definition"]]
        yield {
            "server": row["server"],
            "tool": row["tool"],
            "definition": row["definition"],
            "drift": row["drift"],
            "calls_before": len(before),
            "calls": len(after),
            "failed": sum(r["outcome"] in FAILED for r in after),
            "tool_failures": sum(r["verdict"] == "tool_failure" for r in after),
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
    by_server = groups(of_tools(tables), "server")
    for (server, tool), rows in groups(tables["tools"], "server", "tool").items():
        if (server, tool) not in called:
            yield {
                "server": server,
                "tool": tool,
                "listed_tokens": sum(row["tokens"] * row["sessions"] for row in rows),
                "server_calls": len(by_server.get((server,), ())),
            }


def retry_loops(tables):
    found = defaultdict(list)
    for (server, tool, _), rows in groups(of_tools(tables), "server", "tool", "attempt_of").items():
        if any(row["attempt_why"] == "retry" for row in rows):
            found[server, tool].append(
                sorted(rows, key=lambda r: (r["attempt"], r["requested_at"], r["call_id"]))
            )
    for (server, tool), chains in found.items():
        calls = [row for chain in chains for row in chain]
        recovered = sum(chain[-1]["outcome"] == "ok" for chain in chains)
        yield {
            "server": server,
            "tool": tool,
            "calls": len(calls),
            "retried_calls": len(chains),
            "loops": sum(len(chain) > 2 for chain in chains),
            "retries": sum(row["attempt_why"] == "retry" for row in calls),
            "longest": max(map(len, chains)),
            "recovered_calls": recovered,
            "recovered_rate": recovered / len(chains),
            "wasted_tokens": sum(
                row["request_bytes"] // 4 + (row["response_tokens"] or 0)
                for row in calls
                if row["outcome"] != "ok"
            ),
        }


def repeated_failures(tables):
    answered = {"tool_error", "hidden_error", "protocol_error"}
    told = [row for row in of_tools(tables) if row["arguments"] is not None]
    for (server, tool), rows in groups(told, "server", "tool").items():
        warned = []
        for same in groups(rows, "arguments").values():
            same.sort(
                key=lambda row: (row["requested_at"], row["recording"], row["seq"], row["index"])
            )
            warned += [
                later
                for earlier, later in itertools.pairwise(same)
                if earlier["outcome"] in answered
            ]
        row = {
            "server": server,
            "tool": tool,
            "calls": len(rows),
            "failed": sum(row["outcome"] in FAILED for row in rows),
            "warned_of": sum(row["outcome"] in FAILED for row in warned),
            "ok": sum(row["outcome"] == "ok" for row in rows),
            "warned_in_vain": sum(row["outcome"] == "ok" for row in warned),
        }
        if row["warned_of"] or row["warned_in_vain"]:
            yield row


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
    for (server, tool, side, state, path), rows in found.items():
        yield {
            "server": server,
            "tool": tool,
            "side": side,
            "state": state,
            "path": path,
            "calls": len(rows),
            "accepted": sum(row["outcome"] == "ok" for row in rows),
        }


def hidden_errors(tables):
    every = groups(of_tools(tables), "server", "tool")
    hidden = [row for row in of_tools(tables) if row["outcome"] == "hidden_error"]
    for (server, tool, rule), rows in groups(hidden, "server", "tool", "hidden_rule").items():
        total = len(every[server, tool])
        yield {
            "server": server,
            "tool": tool,
            "hidden_rule": rule,
            "calls": total,
            "hidden_errors": len(rows),
            "hidden_error_rate": len(rows) / total,
            "sessions": distinct(rows, "session"),
            "call_id": min(row["call_id"] for row in rows),
        }


def sessions(tables):
    for (session, recording), rows in groups(tables["calls"], "session", "recording").items():
        started = min(row["requested_at"] for row in rows)
        ended = max(r["answered_at"] or r["cancelled_at"] or r["requested_at"] for r in rows)
        tools = [
            row for row in rows if row["method"] == "tools/call" and row["continued_by"] is None
        ]
        yield {
            "session": session,
            "recording": recording,
            "server": rows[0]["server"],
            "started_at": started,
            "seconds": (ended - started).total_seconds(),
            "calls": len(rows),
            "tool_calls": sum(row["dir"] == "c2s" for row in tools),
            "tools": distinct(rows, "tool"),
            "failed": sum(row["outcome"] in FAILED for row in rows),
            "tool_failures": sum(row["verdict"] == "tool_failure" for row in rows),
            "retries": sum(row["attempt_why"] == "retry" for row in rows),
        }


def clients(tables):
    asked = [row for row in tables["calls"] if row["dir"] == "c2s"]
    for (client, version), rows in groups(asked, "client", "client_version").items():
        tools = [
            row for row in rows if row["method"] == "tools/call" and row["continued_by"] is None
        ]
        ended = [row for row in tools if row["outcome"] in FAILED | {"ok"}]
        ok = sum(row["outcome"] == "ok" for row in tools)
        yield {
            "client": client,
            "client_version": version,
            "servers": distinct(rows, "server"),
            "sessions": distinct(rows, "session"),
            "calls": len(rows),
            "tool_calls": len(tools),
            "ok": ok,
            "failed": len(ended) - ok,
            "success_rate": ok / len(ended) if ended else None,
            "cancelled": sum(row["outcome"] == "cancelled" for row in rows),
            "protocol_versions": sorted({row["protocol_version"] for row in rows} - {None}) or None,
        }


def protocol_versions(tables):
    calls = {row["call_id"]: row for row in tables["calls"]}
    found = defaultdict(int)
    for row in tables["findings"]:
        about = calls.get(row["call_id"])
        if about and row["rule"].startswith("protocol.") and row["severity"] == "error":
            found[about["protocol_version"], about["protocol_source"]] += 1
    for place, rows in groups(tables["calls"], "protocol_version", "protocol_source").items():
        yield {
            "protocol_version": place[0],
            "protocol_source": place[1],
            "servers": distinct(rows, "server"),
            "sessions": distinct(rows, "session"),
            "calls": len(rows),
            "protocol_errors": sum(row["outcome"] == "protocol_error" for row in rows),
            "unanswered": sum(row["outcome"] in {"timeout", "no_response"} for row in rows),
            "finding_errors": found[place],
        }


def finding_counts(tables):
    for place, rows in groups(tables["findings"], "rule", "severity", "about").items():
        yield {
            "rule": place[0],
            "severity": place[1],
            "about": place[2],
            "findings": len(rows),
            "servers": distinct(rows, "server"),
            "recordings": distinct(rows, "recording"),
            "calls": distinct(rows, "call_id"),
        }


def error_groups(tables):
    """Grouped without templates, by which the question groups as well."""
    failed = [row for row in tables["calls"] if row["dir"] == "c2s" and row["outcome"] in FAILED]
    named = [
        {**row, "tool": row["method"] if row["tool"] is None else row["tool"]} for row in failed
    ]
    for (server, tool, verdict), rows in groups(named, "server", "tool", "verdict").items():
        yield {"server": server, "tool": tool, "verdict": verdict, "calls": len(rows)}


ANSWERS = (
    clients,
    context_cost,
    drift,
    error_groups,
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
