-- Which tools can be trusted, how sure is that, and on how much evidence?
-- Shows: server, tool, confidence, insufficient_data, calls, sessions, ok, hidden_errors, tool_failures, business, infrastructure, latency_p50_ms
SELECT * EXCLUDE (level, tools)
FROM _scores
WHERE level = 'tool'
ORDER BY confidence NULLS LAST, calls DESC, server, tool
