-- What scenario results add up to, per session, tool and hour.
SELECT
    recording, session, server, tool, hour,
    count(*) AS planned,
    count(*) FILTER (seed_executed) AS seed_executed,
    count(*) FILTER (seed_executed AND seed_is_valid) AS seed_passed,
    count(*) FILTER (seed_is_validation) AS validation_errors,
    coalesce(fsum(seed_confidence * CASE seed_classification WHEN 'fully_working' THEN 1e0
        WHEN 'partially_working' THEN 7e-1 WHEN 'connectivity_only' THEN 3e-1
        WHEN 'error' THEN 2e-1 WHEN 'broken' THEN 0e0 END), 0) AS seed_weighed,
    count(seed_classification) AS seed_results,
    count(*) FILTER (inspector_executed) AS inspector_executed,
    count(*) FILTER (inspector_executed AND inspector_is_valid) AS inspector_passed,
    count(*) FILTER (inspector_executed AND inspector_is_valid AND scenario = 'happy_path')
        AS happy,
    count(*) FILTER (inspector_executed AND inspector_is_valid AND scenario = 'error_case')
        AS handled,
    count(*) FILTER (
        inspector_classification = 'fully_working'
        AND contains(array_to_string(inspector_evidence, chr(10)), 'business logic')
    ) AS business_logic,
    unnest(arg_min({
        first_happy: inspector_classification, first_happy_at: requested_at,
        first_happy_seq: seq, first_happy_index: "index"
    }, (requested_at, seq, "index"))
        FILTER (scenario = 'happy_path' AND inspector_classification IS NOT NULL)),
    coalesce(fsum(inspector_confidence * CASE inspector_classification WHEN 'fully_working' THEN 1e0
        WHEN 'partially_working' THEN 7e-1 WHEN 'connectivity_only' THEN 3e-1
        WHEN 'error' THEN 2e-1 WHEN 'broken' THEN 0e0 END), 0) AS inspector_weighed,
    count(inspector_classification) AS inspector_results,
    coalesce(fsum(inspector_confidence), 0) AS inspector_confidences
FROM _seed_results
GROUP BY recording, session, server, tool, hour
