-- The kinds of failed calls: how many calls, when, and what calls of a kind have in common.
-- Millions of failed calls are of a few thousand kinds. `call_id` and `error_text` are those of the first.
-- Reading the columns of first calls only skips most row groups.
WITH kinds AS MATERIALIZED (
    SELECT
        failure_kind, count(*) AS calls, min(requested_at) AS first_seen,
        max(requested_at) AS last_seen
    FROM calls
    WHERE failure_kind IS NOT NULL
    GROUP BY failure_kind
),
first_calls AS (
    SELECT c.* FROM calls c JOIN kinds USING (failure_kind) WHERE requested_at = first_seen
    UNION ALL
    SELECT c.* FROM calls c JOIN kinds USING (failure_kind) WHERE first_seen IS NULL
)
SELECT
    failure_kind, any_value(server) AS server, any_value(method) AS method,
    any_value(tool) AS tool,
    coalesce(any_value(template), '(no text: ' || any_value(outcome) || ')') AS template,
    any_value(outcome) AS outcome, any_value(verdict) AS verdict, any_value(reason) AS reason,
    any_value(fault) AS fault, any_value(rule) AS rule, any_value(certainty) AS certainty,
    any_value(hidden_certainty) AS hidden_certainty,
    any_value(input_schema_state) AS input_schema_state,
    any_value(input_schema_error) AS input_schema_error,
    any_value(input_schema_path) AS input_schema_path,
    min(call_id) AS call_id, arg_min(error_text, call_id) AS error_text, any_value(calls) AS calls,
    any_value(first_seen) AS first_seen, any_value(last_seen) AS last_seen
FROM first_calls
JOIN kinds USING (failure_kind)
GROUP BY failure_kind
