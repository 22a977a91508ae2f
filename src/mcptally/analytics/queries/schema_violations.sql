-- Which arguments and results break the tool's own schema, and were such calls accepted?
-- Shows: server, tool, side, state, path, error, calls, sessions, accepted, example_call
WITH calls_of_clients AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS kind FROM calls WHERE dir = 'c2s'
),
sides AS NOT MATERIALIZED (
    SELECT
        server, tool, session, call_id, outcome, 'input' AS side, input_schema_state AS state,
        input_schema_path AS path, input_schema_error AS said,
        hash(kind, hash(input_schema_state), hash(input_schema_path), hash(input_schema_error), 1)
            AS form
    FROM calls_of_clients
    WHERE input_schema_state IN ('invalid', 'unusable_schema')
    UNION ALL
    SELECT
        server, tool, session, call_id, outcome, 'output', output_schema_state,
        output_schema_path, output_schema_error,
        hash(kind, hash(output_schema_state), hash(output_schema_path), hash(output_schema_error),
            2)
    FROM calls_of_clients
    WHERE output_schema_state IN ('invalid', 'unusable_schema', 'missing_output')
),
-- The same is said again and again: it is grouped by its hash, and masked once.
forms AS MATERIALIZED (
    SELECT
        form, any_value(server) AS server, any_value(tool) AS tool, any_value(side) AS side,
        any_value(state) AS state, any_value(said) AS said,
        regexp_replace(any_value(path), '/\d+', '/*', 'g') AS place,
        -- The value comes first, then what is wrong with it; long values have their own lines.
        left(regexp_replace(regexp_replace(any_value(said), '^(?s:.*) (is|has|does|was) ',
            '<value> \1 '), '\s+', ' ', 'g'), 200) AS error,
        hash(hash(any_value(server)), hash(any_value(tool)), any_value(side), any_value(state),
            hash(place), hash(error)) AS part,
        count(*) AS calls,
        count(*) FILTER (outcome = 'ok') AS accepted,
        count(*) FILTER (outcome IN ('tool_error', 'protocol_error')) AS refused,
        min(call_id) AS example_call
    FROM sides
    GROUP BY form
),
visits AS (
    SELECT part, count(*) AS sessions
    FROM (
        SELECT any_value(part) AS part FROM sides JOIN forms USING (form)
        GROUP BY hash(part, hash(session))
    )
    GROUP BY part
),
grouped AS (
    SELECT
        part, any_value(server) AS server, any_value(tool) AS tool, any_value(side) AS side,
        any_value(state) AS state, any_value(place) AS path, any_value(error) AS error,
        sum(calls)::BIGINT AS calls, sum(accepted)::BIGINT AS accepted,
        sum(refused)::BIGINT AS refused,
        arg_min({said: said}, example_call) AS example, min(example_call) AS example_call
    FROM forms
    GROUP BY part
)
SELECT
    server, tool, side, state, path, error, calls, sessions, accepted, refused,
    left(example.said, 300) AS example, example_call
FROM grouped
JOIN visits USING (part)
ORDER BY calls DESC, server, tool, side, state, path, error
