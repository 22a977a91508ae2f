-- Calls as scenario results: what the seed's two readings sum up, one row a planned scenario.
SELECT
    recording, session, server, tool, call_id AS result,
    date_trunc('hour', requested_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS hour,
    requested_at, seq, "index",
    coalesce(scenario, 'happy_path') AS scenario,
    -- Where the program throws, its own engine calls the scenario executed and broken.
    inspector_classification IS NOT NULL OR inspector_error IS NOT NULL AS inspector_executed,
    coalesce(inspector_is_valid, false) AS inspector_is_valid,
    if(inspector_error IS NOT NULL, coalesce(inspector_classification, 'broken'),
        inspector_classification) AS inspector_classification,
    if(inspector_error IS NOT NULL, coalesce(inspector_confidence, 0),
        inspector_confidence) AS inspector_confidence,
    inspector_evidence,
    seed_classification IS NOT NULL AS seed_executed,
    coalesce(seed_is_valid, false) AS seed_is_valid,
    seed_classification, seed_confidence,
    coalesce(seed_is_error AND seed_is_business_error, false) AS seed_is_validation
FROM calls
WHERE tool IS NOT NULL AND dir = 'c2s'
