-- Per session, tool or server (level) and metric: n observations with the sum y.
-- Shares count calls; `ln_…` sum natural logarithms, so their mean is that of a typical call.
WITH sessions AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool, session,
        unnest([
            {metric: 'failure_rate', n: count(*) FILTER (judged),
                y: count(*) FILTER (failed)::DOUBLE},
            {metric: 'error_rate', n: count(*) FILTER (ended),
                y: count(*) FILTER (ended AND outcome <> 'ok')::DOUBLE},
            {metric: 'hidden_error_rate', n: count(*) FILTER (claims_success),
                y: count(*) FILTER (outcome = 'hidden_error')::DOUBLE},
            {metric: 'infrastructure_rate', n: count(*) FILTER (ended),
                y: count(*) FILTER (ended AND verdict = 'infrastructure')::DOUBLE},
            {metric: 'unanswered_rate', n: count(*) FILTER (ended),
                y: count(*) FILTER (outcome IN ('timeout', 'no_response'))::DOUBLE},
            {metric: 'invalid_input_rate', n: count(*) FILTER (input_checked),
                y: count(*) FILTER (input_checked AND input_schema_state = 'invalid')::DOUBLE},
            {metric: 'invalid_output_rate', n: count(*) FILTER (output_checked),
                y: count(*) FILTER (output_checked AND output_schema_state <> 'valid')::DOUBLE},
            {metric: 'retry_rate', n: count(*),
                y: count(*) FILTER (attempt_why = 'retry')::DOUBLE},
            {metric: 'ln_latency_ms', n: count(latency_ms),
                y: sum(ln(greatest(latency_ms, 0.001)))},
            {metric: 'ln_response_bytes', n: count(*) FILTER (response_bytes > 0),
                y: sum(ln(response_bytes)) FILTER (response_bytes > 0)},
            {metric: 'inspector_overall_confidence', n: count(inspector_points),
                y: sum(inspector_points)::DOUBLE},
            {metric: 'seed_overall_confidence', n: count(seed_points),
                y: sum(seed_points)::DOUBLE}
        ], recursive := true)
    FROM _judged
    GROUP BY GROUPING SETS ((server, tool, session), (server, session))
)
SELECT * FROM sessions WHERE n > 0
