-- Which arguments and results break the tool's own schema, and were such calls accepted?
-- Shows: server, tool, side, state, path, error, calls, sessions, accepted, example_call
WITH sides AS (
    SELECT
        server, tool, session, call_id, outcome, 'input' AS side, input_schema_state AS state,
        input_schema_path AS path, input_schema_error AS said
    FROM calls
    WHERE input_schema_state IN ('invalid', 'unusable_schema') AND dir = 'c2s'
    UNION ALL
    SELECT
        server, tool, session, call_id, outcome, 'output', output_schema_state,
        output_schema_path, output_schema_error
    FROM calls
    WHERE output_schema_state IN ('invalid', 'unusable_schema', 'missing_output') AND dir = 'c2s'
),
masked AS (
    SELECT
        * EXCLUDE (path),
        regexp_replace(path, '/\d+', '/*', 'g') AS path,
        -- The value comes first, then what is wrong with it; long values have their own lines.
        left(regexp_replace(regexp_replace(said, '^(?s:.*) (is|has|does|was) ', '<value> \1 '),
            '\s+', ' ', 'g'), 200) AS error
    FROM sides
)
SELECT
    server, tool, side, state, path, error,
    count(*) AS calls,
    count(DISTINCT session) AS sessions,
    count(*) FILTER (outcome = 'ok') AS accepted,
    count(*) FILTER (outcome IN ('tool_error', 'protocol_error')) AS refused,
    left(arg_min(said, call_id), 300) AS example,
    min(call_id) AS example_call
FROM masked
GROUP BY ALL
ORDER BY calls DESC, server, tool, side, state, path, error
