-- The seed's overall confidence, scenario status and health, per tool and per server (`level`).
-- The numbers come from rules/seed.toml and rules/inspector.toml; a test compares the results.
WITH tallies AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool,
        sum(planned)::BIGINT AS planned,
        sum(seed_executed)::BIGINT AS seed_executed,
        sum(seed_passed)::BIGINT AS seed_passed,
        sum(validation_errors)::BIGINT AS validation_errors,
        fsum(seed_weighed) AS seed_weighed,
        sum(seed_results)::BIGINT AS seed_results,
        sum(inspector_executed)::BIGINT AS inspector_executed,
        sum(inspector_passed)::BIGINT AS inspector_passed,
        sum(happy) > 0 AS happy,
        sum(handled) > 0 AS handled,
        sum(business_logic)::BIGINT AS business_logic,
        arg_min(first_happy, (first_happy_at, recording, first_happy_seq, first_happy_index))
            AS first_happy,
        fsum(inspector_weighed) AS inspector_weighed,
        sum(inspector_results)::BIGINT AS inspector_results,
        fsum(inspector_confidences) AS inspector_confidences
    FROM usage
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
        -- least() ignores NULL, but without an executed result this must stay NULL.
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
    floor(base * 6e-1 + inspector_confidences / nullif(inspector_results, 0) * 4e-1 + 5e-1)
        AS inspector_scenario_confidence
FROM confidences
