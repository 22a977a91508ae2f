-- Which results claim success and report a failure, and by which sign is that known?
-- Shows: server, tool, hidden_errors, hidden_error_rate, hidden_rule, hidden_confidence, verdict, example, example_call
-- How many calls claim success is in `usage`. Hashes of names are cheaper to group by than names.
WITH hidden AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS kind, hash(session) AS visit
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND outcome = 'hidden_error'
),
found AS MATERIALIZED (
    SELECT
        kind, hidden_rule, verdict, any_value(server) AS server, any_value(tool) AS tool,
        count(*) AS hidden_errors,
        sum(hidden_confidence) AS confidence, count(hidden_confidence) AS judged,
        max(requested_at) AS last_seen,
        arg_min(coalesce(error_text, text), call_id) AS example,
        min(call_id) AS example_call
    FROM hidden
    GROUP BY kind, hidden_rule, verdict
),
signs AS (
    SELECT
        kind, hidden_rule, any_value(server) AS server, any_value(tool) AS tool,
        sum(hidden_errors)::BIGINT AS hidden_errors,
        sum(confidence) / nullif(sum(judged), 0) AS hidden_confidence,
        first(verdict ORDER BY hidden_errors DESC, verdict) FILTER (verdict IS NOT NULL)
            AS verdict,
        max(last_seen) AS last_seen,
        left(arg_min(example, example_call), 300) AS example,
        min(example_call) AS example_call
    FROM found
    GROUP BY kind, hidden_rule
),
claims AS MATERIALIZED (
    SELECT hash(hash(server), hash(tool)) AS kind, hash(session) AS visit,
        sum(ok + hidden_errors)::DOUBLE AS n
    FROM usage
    WHERE ok + hidden_errors > 0
        AND hash(hash(server), hash(tool)) IN (SELECT kind FROM found)
    GROUP BY kind, visit
),
sessions AS MATERIALIZED (
    SELECT kind, hidden_rule, visit, count(*)::DOUBLE AS y FROM hidden GROUP BY ALL
),
shares AS (
    SELECT r.kind, r.hidden_rule, sum(n)::BIGINT AS calls, count(y) AS sessions,
        rate_bounds(list(coalesce(y, 0)), list(n)) AS bounds
    FROM (SELECT DISTINCT kind, hidden_rule FROM found) r
    JOIN claims v USING (kind)
    LEFT JOIN sessions s
        ON s.kind = r.kind AND s.hidden_rule IS NOT DISTINCT FROM r.hidden_rule
        AND s.visit = v.visit
    GROUP BY r.kind, r.hidden_rule
)
SELECT
    s.server, s.tool, calls, hidden_errors,
    -- Of the tool's calls that claim success; all signs together: tool_scores.
    hidden_errors / calls AS hidden_error_rate,
    bounds[1] AS hidden_error_rate_low, bounds[2] AS hidden_error_rate_high,
    s.hidden_rule, hidden_confidence, verdict, sessions, last_seen, example, example_call
FROM signs s
JOIN shares r ON r.kind = s.kind AND r.hidden_rule IS NOT DISTINCT FROM s.hidden_rule
ORDER BY hidden_errors DESC, s.server, s.tool, s.hidden_rule
