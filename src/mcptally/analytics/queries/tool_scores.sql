-- How often does each tool work, how often does it fail itself, and how certain is that?
-- Shows: server, tool, ok, calls, success_rate, confidence, tool_failures, infrastructure, ambiguous, business, hidden_errors, sessions, latency_p50_ms
-- None: No tool was called.
-- The tools that cost callers most come first. Names that are not tools are in `unlisted_names`.
SELECT
    a.* EXCLUDE (level, tools, tools_listed, q),
    rank() OVER (ORDER BY confidence_shrunk_high NULLS LAST) AS rank_worst,
    rank() OVER (ORDER BY confidence_shrunk_low DESC NULLS LAST) AS rank_best,
    -- Whether the server ever listed a tool of this name; null if no listing was recorded.
    if(s.lists, tools_listed > 0, NULL) AS listed
FROM _scores('tool') a
LEFT JOIN (SELECT DISTINCT server, true AS lists FROM tools) s
    ON s.server IS NOT DISTINCT FROM a.server
ANTI JOIN _unlisted_names u ON u.server IS NOT DISTINCT FROM a.server AND u.tool = a.tool
ORDER BY
    _caller_cost(a.tool_failures, a.infrastructure, a.ambiguous, a.business) DESC,
    a.calls DESC, a.server, a.tool
