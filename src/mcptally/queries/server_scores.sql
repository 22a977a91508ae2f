-- Which servers can be trusted, by calls and by tools, and how sure is that?
-- Shows: server, tools, confidence, insufficient_data, calls, sessions, ok, hidden_errors, tool_failures, business, infrastructure, latency_p50_ms
SELECT
    s.server, s.tools, s.calls, s.sessions,
    s.confidence, s.confidence_low, s.confidence_high, s.insufficient_data,
    t.tool_mean AS confidence_tool_mean,
    s.* EXCLUDE (level, server, tool, tools, calls, sessions, confidence, confidence_low,
        confidence_high, insufficient_data)
FROM _scores s
LEFT JOIN (
    SELECT server, avg(confidence) AS tool_mean FROM _scores WHERE level = 'tool' GROUP BY server
) t ON s.server IS NOT DISTINCT FROM t.server
WHERE s.level = 'server'
ORDER BY s.confidence NULLS LAST, s.calls DESC, s.server
