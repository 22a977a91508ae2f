-- Counts per session and tool or server: `…_n` calls, of which `…_y` are hits of a metric.
-- Of: per
-- If a session lies within one hour, its row in `usage` is complete and needs no sum. Grouping by
-- hashes of names is cheaper than grouping by names.
WITH counts AS NOT MATERIALIZED (
    SELECT
        per AS level, server, CASE WHEN per = 'tool' THEN u.tool END AS tool, session,
        hash(session) AS session_hash,
        hash(hash(server), CASE WHEN per = 'tool' THEN hash(u.tool) ELSE 0 END) AS tool_hash,
        hash(hash(server), CASE WHEN per = 'tool' THEN hash(u.tool) ELSE 0 END, hash(session))
            AS group_hash,
        ok + hidden_errors + tool_errors + protocol_errors + timeouts + no_responses AS ended_n,
        ok AS success_y,
        ok + tool_failures AS shown_n,
        ok + tool_failures + ambiguous AS possibly_shown_n,
        calls AS call_n, tool_failures AS failure_y, business AS refusal_y,
        infrastructure AS infrastructure_y, ambiguous AS ambiguous_y, hidden_errors AS hidden_y,
        timeouts + no_responses AS unanswered_y, retries AS retry_y,
        inputs_checked AS input_n, inputs_invalid AS input_y,
        outputs_checked AS output_n, outputs_invalid AS output_y,
        coalesce(len(latencies_ms), 0) AS latency_n, ln_latency_ms AS latency_y,
        sized AS bytes_n, ln_response_bytes AS bytes_y
    FROM usage u
),
-- Sessions that span several hours or recordings: only these can have several rows per tool.
long_sessions AS MATERIALIZED (
    SELECT hash(session) AS session_hash
    FROM usage
    WHERE per = 'tool'
    GROUP BY session_hash
    HAVING min(hour) IS DISTINCT FROM max(hour) OR count(hour) NOT IN (0, count(*))
        OR min(hash(recording)) <> max(hash(recording))
)
SELECT
    level, server, tool, session, tool_hash, group_hash, COLUMNS('_[ny]$')::DOUBLE
FROM counts
ANTI JOIN long_sessions USING (session_hash)
WHERE per = 'tool'
UNION ALL
SELECT
    any_value(level), any_value(server), any_value(tool), any_value(session), any_value(tool_hash),
    group_hash, sum(COLUMNS('_[ny]$'))::DOUBLE
FROM counts
SEMI JOIN long_sessions USING (session_hash)
WHERE per = 'tool'
GROUP BY group_hash
UNION ALL
SELECT
    any_value(level), any_value(server), NULL, any_value(session), any_value(tool_hash),
    group_hash, sum(COLUMNS('_[ny]$'))::DOUBLE
FROM counts
WHERE per = 'server'
GROUP BY group_hash
