-- Which arguments and results break the tool's own schema, and were such calls accepted?
-- Shows: server, tool, side, state, path, error, calls, sessions, accepted, example_call
WITH sides AS NOT MATERIALIZED (
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
-- Each text is masked once, and known by its hash.
errors AS MATERIALIZED (
    SELECT
        text, said,
        -- The value comes first, then what is wrong with it; long values have their own lines.
        left(regexp_replace(regexp_replace(said, '^(?s:.*) (is|has|does|was) ', '<value> \1 '),
            '\s+', ' ', 'g'), 200) AS error
    FROM (SELECT hash(said) AS text, any_value(said) AS said FROM sides GROUP BY text)
),
places AS MATERIALIZED (
    SELECT DISTINCT path AS place, regexp_replace(path, '/\d+', '/*', 'g') AS path FROM sides
),
masked AS (
    SELECT s.* EXCLUDE (path, said), p.path, e.error, text
    FROM sides s
    JOIN errors e ON e.text = hash(s.said)
    JOIN places p ON p.place IS NOT DISTINCT FROM s.path
),
grouped AS (
    SELECT
        server, tool, side, state, path, error,
        count(*) AS calls,
        count(DISTINCT hash(session)) AS sessions,
        count(*) FILTER (outcome = 'ok') AS accepted,
        count(*) FILTER (outcome IN ('tool_error', 'protocol_error')) AS refused,
        arg_min(text, call_id) AS text,
        min(call_id) AS example_call
    FROM masked
    GROUP BY server, tool, side, state, path, error
)
SELECT
    server, tool, side, state, path, g.error, calls, sessions, accepted, refused,
    left(e.said, 300) AS example, example_call
FROM grouped g
JOIN errors e USING (text)
ORDER BY calls DESC, server, tool, side, state, path, g.error
