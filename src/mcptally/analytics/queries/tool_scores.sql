-- How reliable is each tool, how certain is that, and on how much data?
-- Shows: server, tool, confidence, calls, tool_failures, hidden_errors, sessions, insufficient_data, business, infrastructure, ok, latency_p50_ms
SELECT
    a.* EXCLUDE (level, tools, tools_listed, q),
    rank() OVER (ORDER BY failure_rate_shrunk_low DESC NULLS LAST) AS rank_worst,
    rank() OVER (ORDER BY failure_rate_shrunk_high NULLS LAST) AS rank_best,
    -- Whether the server ever listed a tool of this name; null if no listing was recorded.
    if(s.lists, tools_listed > 0, NULL) AS listed
FROM _scores('tool') a
LEFT JOIN (SELECT DISTINCT server, true AS lists FROM tools) s
    ON s.server IS NOT DISTINCT FROM a.server
ORDER BY a.confidence NULLS LAST, a.calls DESC, a.server, a.tool
