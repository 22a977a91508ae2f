-- Which results claim success and report a failure, and by which sign is that known?
-- Shows: server, tool, hidden_errors, hidden_error_rate, hidden_rule, hidden_confidence, verdict, example, example_call
WITH claims AS (
    SELECT *, count(*) OVER (PARTITION BY server, tool) AS calls
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        AND outcome IN ('ok', 'hidden_error')
)
SELECT
    server, tool, any_value(calls) AS calls,
    count(*) AS hidden_errors,
    -- Of the tool's calls that claim success; all signs together: tool_scores.
    count(*) / any_value(calls) AS hidden_error_rate,
    hidden_rule, avg(hidden_confidence) AS hidden_confidence,
    mode(verdict ORDER BY verdict) AS verdict,
    count(DISTINCT session) AS sessions,
    max(requested_at) AS last_seen,
    left(arg_min(coalesce(error_text, text), call_id), 300) AS example,
    min(call_id) AS example_call
FROM claims
WHERE outcome = 'hidden_error'
GROUP BY server, tool, hidden_rule
ORDER BY hidden_errors DESC, server, tool, hidden_rule
