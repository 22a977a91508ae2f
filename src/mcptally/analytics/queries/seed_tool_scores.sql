-- How do the seed document and its original program judge each tool?
-- Shows: server, tool, calls, seed_overall_confidence, seed_scenario_status, health, inspector_overall_confidence, inspector_scenario_status, inspector_scenario_confidence
-- None: No call to a tool was recorded.
SELECT *
FROM _seed_rollup('tool')
-- Rounded: the last digits of a mean depend on the order in which threads add values.
ORDER BY round(seed_overall_confidence, 6) NULLS LAST, calls DESC, server, tool
