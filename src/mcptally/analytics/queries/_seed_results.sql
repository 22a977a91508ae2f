-- Tool calls as scenario results, according to the seed document and its original program.
SELECT
    server, tool, session, recording, seq, "index", requested_at,
    coalesce(scenario, 'happy_path') AS planned_scenario,
    seed_classification IS NOT NULL AS seed_executed,
    seed_classification, seed_confidence, seed_is_valid,
    coalesce(seed_is_error AND seed_is_business_error, false) AS is_validation_error,
    -- If the original program throws, its engine counts the scenario as executed and broken.
    inspector_classification IS NOT NULL OR inspector_error IS NOT NULL AS inspector_executed,
    coalesce(inspector_classification, CASE WHEN inspector_error IS NOT NULL THEN 'broken' END)
        AS inspector_classification,
    coalesce(inspector_confidence, CASE WHEN inspector_error IS NOT NULL THEN 0e0 END)
        AS inspector_confidence,
    inspector_is_valid, inspector_evidence
FROM seed_scores
WHERE tool IS NOT NULL AND dir = 'c2s'
