-- The seed's overall confidence, scenario status and health, per tool and per server (level).
-- Numbers: rules/seed.toml and rules/inspector.toml; tests hold these to the reference.
WITH tallies AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool,
        count(*) AS planned,
        count(*) FILTER (seed_executed) AS seed_executed,
        count(*) FILTER (seed_executed AND seed_is_valid) AS seed_passed,
        count(*) FILTER (seed_is_validation) AS validation_errors,
        fsum(seed_confidence * CASE seed_classification WHEN 'fully_working' THEN 1e0
            WHEN 'partially_working' THEN 7e-1 WHEN 'connectivity_only' THEN 3e-1
            WHEN 'error' THEN 2e-1 WHEN 'broken' THEN 0e0 END) AS seed_weighed,
        count(seed_classification) AS seed_results,
        count(*) FILTER (inspector_executed) AS inspector_executed,
        count(*) FILTER (inspector_executed AND inspector_is_valid) AS inspector_passed,
        coalesce(bool_or(inspector_executed AND inspector_is_valid AND scenario = 'happy_path'),
            false) AS happy,
        coalesce(bool_or(inspector_executed AND inspector_is_valid AND scenario = 'error_case'),
            false) AS handled,
        count(*) FILTER (
            inspector_classification = 'fully_working'
            AND contains(array_to_string(inspector_evidence, chr(10)), 'business logic')
        ) AS business_logic,
        first(inspector_classification ORDER BY place)
            FILTER (scenario = 'happy_path' AND inspector_classification IS NOT NULL) AS first_happy,
        fsum(inspector_confidence * CASE inspector_classification WHEN 'fully_working' THEN 1e0
            WHEN 'partially_working' THEN 7e-1 WHEN 'connectivity_only' THEN 3e-1
            WHEN 'error' THEN 2e-1 WHEN 'broken' THEN 0e0 END) AS inspector_weighed,
        count(inspector_classification) AS inspector_results,
        fsum(inspector_confidence) AS inspector_confidences
    FROM _seed_results
    GROUP BY GROUPING SETS ((server, tool), (server))
),
rates AS (
    SELECT
        *,
        least(1e0, (inspector_passed + business_logic)::DOUBLE / nullif(inspector_executed, 0))
            AS rate,
        happy OR coalesce(first_happy = 'fully_working', false) AS happy_works,
        inspector_executed::DOUBLE / planned * 100
            * (inspector_passed::DOUBLE / nullif(inspector_executed, 0)) AS executed_share
    FROM tallies
),
confidences AS (
    SELECT
        *,
        -- least() passes over NULL, which nothing executed must stay.
        if(inspector_executed > 0,
            least(100e0, least(100e0, executed_share + if(happy, 10, 0)) + if(handled, 5, 0))
                * if(inspector_executed < 3, 7e-1, 1e0), NULL) AS base
    FROM rates
)
SELECT
    level, server, tool, planned,
    seed_executed, seed_passed,
    seed_weighed / (nullif(seed_results, 0) * 100) * 100 AS seed_overall_confidence,
    CASE
        WHEN seed_passed = planned THEN 'fully_working'
        WHEN seed_passed > planned * 5e-1 THEN 'partially_working'
        WHEN seed_executed > 0 THEN 'connectivity_only'
        ELSE 'broken'
    END AS seed_scenario_status,
    CASE
        WHEN seed_executed < 3 THEN 'not enough data'
        WHEN seed_passed <= seed_executed * 5e-1 THEN 'broken and crashes'
        WHEN validation_errors > 0 THEN 'functional but returns validation errors'
        ELSE 'functional'
    END AS health,
    inspector_executed, inspector_passed,
    inspector_weighed / (nullif(inspector_results, 0) * 100) * 100 AS inspector_overall_confidence,
    CASE
        WHEN inspector_executed = 0 THEN 'untested'
        WHEN handled AND rate >= 9e-1 THEN 'fully_working'
        WHEN handled AND rate >= 7e-1 THEN 'partially_working'
        WHEN rate >= 4e-1 OR (handled AND business_logic > 0) THEN 'partially_working'
        WHEN rate >= 2e-1 OR happy_works OR business_logic > 0 THEN 'connectivity_only'
        ELSE 'broken'
    END AS inspector_scenario_status,
    floor(base * 6e-1 + inspector_confidences / inspector_results * 4e-1 + 5e-1)
        AS inspector_scenario_confidence
FROM confidences
