-- Which results claim success but report a failure, and which rule detected that?
-- Shows: server, tool, hidden_errors, hidden_error_rate, hidden_rule, hidden_certainty, verdict, example, call_id
-- None: No result that claims success reports a failure.
-- The number of calls comes from `usage`. Grouping by hashes of names is cheaper than grouping by
-- the names.
WITH hidden AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS tool_hash, hash(session) AS session_hash
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND outcome = 'hidden_error'
),
counts AS MATERIALIZED (
    SELECT
        tool_hash, hidden_rule, verdict, any_value(server) AS server, any_value(tool) AS tool,
        count(*) AS hidden_errors,
        sum(hidden_certainty) AS certainty, count(hidden_certainty) AS judged,
        max(requested_at) AS last_seen,
        arg_min(coalesce(error_text, text), call_id) AS example,
        min(call_id) AS call_id
    FROM hidden
    GROUP BY tool_hash, hidden_rule, verdict
),
rules AS (
    SELECT
        tool_hash, hidden_rule, any_value(server) AS server, any_value(tool) AS tool,
        sum(hidden_errors)::BIGINT AS hidden_errors,
        sum(certainty) / nullif(sum(judged), 0) AS hidden_certainty,
        first(verdict ORDER BY hidden_errors DESC, verdict) FILTER (verdict IS NOT NULL)
            AS verdict,
        max(last_seen) AS last_seen,
        left(arg_min(example, call_id), 300) AS example,
        min(call_id) AS call_id
    FROM counts
    GROUP BY tool_hash, hidden_rule
),
used AS MATERIALIZED (
    SELECT hash(hash(server), hash(tool)) AS tool_hash, hash(session) AS session_hash,
        sum(calls)::DOUBLE AS n
    FROM usage
    WHERE hash(hash(server), hash(tool)) IN (SELECT tool_hash FROM counts)
    GROUP BY tool_hash, session_hash
),
sessions AS MATERIALIZED (
    SELECT tool_hash, hidden_rule, session_hash, count(*)::DOUBLE AS y FROM hidden GROUP BY ALL
),
rates AS (
    SELECT r.tool_hash, r.hidden_rule, sum(n)::BIGINT AS calls, count(y) AS sessions,
        _interval(_moments(n, coalesce(y, 0))) AS share
    FROM (SELECT DISTINCT tool_hash, hidden_rule FROM counts) r
    JOIN used v USING (tool_hash)
    LEFT JOIN sessions s
        ON s.tool_hash = r.tool_hash AND s.hidden_rule IS NOT DISTINCT FROM r.hidden_rule
        AND s.session_hash = v.session_hash
    GROUP BY r.tool_hash, r.hidden_rule
)
SELECT
    s.server, s.tool, calls, hidden_errors,
    -- Share of the tool's calls. The rate over all rules is in tool_scores.
    hidden_errors / calls AS hidden_error_rate,
    share.low AS hidden_error_rate_low, share.high AS hidden_error_rate_high,
    s.hidden_rule, hidden_certainty, verdict, sessions, last_seen, example, call_id
FROM rules s
JOIN rates r ON r.tool_hash = s.tool_hash AND r.hidden_rule IS NOT DISTINCT FROM s.hidden_rule
ORDER BY hidden_errors DESC, s.server, s.tool, s.hidden_rule
