-- How often does each tool work, how often does it fail itself, and how certain is that?
-- Shows: server, tool, ok, calls, success_rate, confidence, tool_failures, infrastructure, ambiguous, business, hidden_errors, sessions, latency_p50_ms
-- The tools that cost callers most come first. Names that are no tools are in `unlisted_names`.
SELECT
    a.* EXCLUDE (level, tools, tools_listed, q, seed_points_low, seed_points_high,
        inspector_points_low, inspector_points_high),
    rank() OVER (ORDER BY confidence_shrunk_high NULLS LAST) AS rank_worst,
    rank() OVER (ORDER BY confidence_shrunk_low DESC NULLS LAST) AS rank_best,
    -- Whether the server ever listed a tool of this name; null if no listing was recorded.
    if(s.lists, tools_listed > 0, NULL) AS listed,
    seed_overall_confidence, seed_points_low AS seed_overall_confidence_low,
    seed_points_high AS seed_overall_confidence_high, seed_scenario_status, health,
    inspector_overall_confidence, inspector_points_low AS inspector_overall_confidence_low,
    inspector_points_high AS inspector_overall_confidence_high, inspector_scenario_status,
    inspector_scenario_confidence
FROM _scores('tool') a
LEFT JOIN _seed_scores r
    ON r.level = a.level AND r.server IS NOT DISTINCT FROM a.server AND r.tool = a.tool
LEFT JOIN (SELECT DISTINCT server, true AS lists FROM tools) s
    ON s.server IS NOT DISTINCT FROM a.server
ANTI JOIN _unlisted_names u ON u.server IS NOT DISTINCT FROM a.server AND u.tool = a.tool
ORDER BY
    _caller_cost(a.tool_failures, a.infrastructure, a.ambiguous, a.business) DESC,
    a.calls DESC, a.server, a.tool
