-- The seed's overall confidence, scenario status and health, per tool or per server.
-- Of: per
-- The numbers come from rules/seed.toml and rules/inspector.toml; a test compares the results.
WITH weights AS (
    SELECT MAP {
        'fully_working': 1e0, 'partially_working': 7e-1, 'connectivity_only': 3e-1,
        'error': 2e-1, 'broken': 0e0
    } AS weight
),
sums AS MATERIALIZED (
    SELECT
        hash(hash(server), if(per = 'tool', hash(r.tool), 0)) AS place,
        any_value(server) AS server, any_value(if(per = 'tool', r.tool, NULL)) AS tool,
        count(*) AS calls,
        count(*) FILTER (seed_executed) AS seed_executed,
        count(*) FILTER (seed_executed AND seed_is_valid) AS seed_passed,
        count(*) FILTER (is_validation_error) AS validation_errors,
        count(seed_classification) AS seed_results,
        coalesce(fsum(seed_confidence * weight[seed_classification]), 0) AS seed_weighed,
        count(*) FILTER (inspector_executed) AS inspector_executed,
        count(*) FILTER (inspector_executed AND inspector_is_valid) AS inspector_passed,
        count(*) FILTER (
            inspector_executed AND inspector_is_valid AND planned_scenario = 'happy_path'
        ) AS happy,
        count(*) FILTER (
            inspector_executed AND inspector_is_valid AND planned_scenario = 'error_case'
        ) AS handled,
        count(*) FILTER (
            inspector_classification = 'fully_working'
            AND contains(array_to_string(inspector_evidence, ' | '), 'business logic')
        ) AS business_logic,
        count(inspector_classification) AS inspector_results,
        coalesce(fsum(inspector_confidence * weight[inspector_classification]), 0)
            AS inspector_weighed,
        fsum(inspector_confidence) AS inspector_confidences,
        min({
            requested_at: requested_at, recording: recording, seq: seq, index: "index",
            classification: inspector_classification
        }) FILTER (planned_scenario = 'happy_path' AND inspector_classification IS NOT NULL)
            AS first_happy
    FROM _seed_results r, weights
    GROUP BY place, hash(session)
),
means AS (
    SELECT
        place, fsum(seed_weighed) / sum(seed_results) AS seed_mean,
        fsum(inspector_weighed) / sum(inspector_results) AS inspector_mean
    FROM sums
    GROUP BY place
),
tallies AS (
    SELECT
        any_value(server) AS server, any_value(tool) AS tool,
        sum(calls)::BIGINT AS calls,
        sum(seed_executed)::BIGINT AS seed_executed,
        sum(seed_passed)::BIGINT AS seed_passed,
        sum(validation_errors)::BIGINT AS validation_errors,
        sum(seed_results)::BIGINT AS seed_results,
        fsum(seed_weighed) AS seed_weighed,
        count(*) FILTER (seed_results > 0) AS seed_sessions,
        fsum((seed_weighed - seed_results * seed_mean) ** 2) AS seed_squares,
        sum(inspector_executed)::BIGINT AS inspector_executed,
        sum(inspector_passed)::BIGINT AS inspector_passed,
        sum(happy) > 0 AS happy,
        sum(handled) > 0 AS handled,
        sum(business_logic)::BIGINT AS business_logic,
        sum(inspector_results)::BIGINT AS inspector_results,
        fsum(inspector_weighed) AS inspector_weighed,
        fsum(inspector_confidences) AS inspector_confidences,
        count(*) FILTER (inspector_results > 0) AS inspector_sessions,
        fsum((inspector_weighed - inspector_results * inspector_mean) ** 2) AS inspector_squares,
        struct_extract(min(first_happy), 'classification') AS first_happy
    FROM sums
    JOIN means USING (place)
    GROUP BY place
),
rates AS (
    SELECT
        *,
        least(1e0, (inspector_passed + business_logic)::DOUBLE / nullif(inspector_executed, 0))
            AS rate,
        happy OR coalesce(first_happy = 'fully_working', false) AS happy_works,
        inspector_executed::DOUBLE / calls * 100
            * coalesce(inspector_passed::DOUBLE / nullif(inspector_executed, 0), 0)
            AS executed_share
    FROM tallies
),
confidences AS (
    SELECT
        *,
        seed_weighed / (nullif(seed_results, 0) * 100) * 100 AS seed_mean,
        inspector_weighed / (nullif(inspector_results, 0) * 100) * 100 AS inspector_mean,
        _mean_margin(seed_sessions, seed_results, seed_squares) AS seed_margin,
        _mean_margin(inspector_sessions, inspector_results, inspector_squares)
            AS inspector_margin,
        least(100e0, least(100e0, executed_share + if(happy, 10, 0)) + if(handled, 5, 0))
            * if(inspector_executed < 3, 7e-1, 1e0) AS base
    FROM rates
)
SELECT
    server, tool, calls,
    seed_executed, seed_passed,
    seed_mean AS seed_overall_confidence,
    greatest(0, seed_mean - seed_margin) AS seed_overall_confidence_low,
    least(100, seed_mean + seed_margin) AS seed_overall_confidence_high,
    CASE
        WHEN seed_passed = calls THEN 'fully_working'
        WHEN seed_passed > calls * 5e-1 THEN 'partially_working'
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
    inspector_mean AS inspector_overall_confidence,
    greatest(0, inspector_mean - inspector_margin) AS inspector_overall_confidence_low,
    least(100, inspector_mean + inspector_margin) AS inspector_overall_confidence_high,
    CASE
        WHEN inspector_executed = 0 THEN 'untested'
        WHEN handled AND rate >= 9e-1 THEN 'fully_working'
        WHEN handled AND rate >= 7e-1 THEN 'partially_working'
        WHEN rate >= 4e-1 OR (handled AND business_logic > 0) THEN 'partially_working'
        WHEN rate >= 2e-1 OR happy_works OR business_logic > 0 THEN 'connectivity_only'
        ELSE 'broken'
    END AS inspector_scenario_status,
    floor(coalesce(
        base * 6e-1 + inspector_confidences / nullif(inspector_results, 0) * 4e-1, base
    ) + 5e-1)
        AS inspector_scenario_confidence
FROM confidences
