-- The groups of calls whose arguments or results violate the tool's schema.
-- Of: sides
-- `sides` is a list with `input`, `output` or both.
WITH calls_of_clients AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS tool_hash FROM calls WHERE dir = 'c2s'
),
violations AS NOT MATERIALIZED (
    SELECT
        server, tool, session, call_id, outcome, 'input' AS side, input_schema_state AS state,
        input_schema_path AS path, input_schema_error AS message,
        hash(tool_hash, hash(input_schema_state), hash(input_schema_path),
            hash(input_schema_error), 1)
            AS message_hash
    FROM calls_of_clients
    WHERE list_contains(sides, 'input')
        AND input_schema_state <> 'none' AND input_schema_state <> 'valid'
    UNION ALL
    SELECT
        server, tool, session, call_id, outcome, 'output', output_schema_state,
        output_schema_path, output_schema_error,
        hash(tool_hash, hash(output_schema_state), hash(output_schema_path),
            hash(output_schema_error), 2)
    FROM calls_of_clients
    WHERE list_contains(sides, 'output')
        AND output_schema_state <> 'none' AND output_schema_state <> 'valid'
),
-- Messages repeat often, so they are grouped by hash and each is masked once.
messages AS MATERIALIZED (
    SELECT
        message_hash, any_value(server) AS server, any_value(tool) AS tool, any_value(side) AS side,
        any_value(state) AS state, any_value(message) AS message,
        regexp_replace(any_value(path), '/\d+', '/*', 'g') AS place,
        -- A message begins with the value, followed by what is wrong with it. The value is masked.
        left(regexp_replace(regexp_replace(any_value(message), '^(?s:.*) (is|has|does|was) ',
            '<value> \1 '), '\s+', ' ', 'g'), 200) AS error,
        hash(hash(any_value(server)), hash(any_value(tool)), any_value(side), any_value(state),
            hash(place), hash(error)) AS group_hash,
        count(*) AS calls,
        count(*) FILTER (outcome = 'ok') AS accepted,
        count(*) FILTER (_marked_error(outcome)) AS refused,
        min(call_id) AS call_id
    FROM violations
    GROUP BY message_hash
),
session_counts AS (
    SELECT group_hash, count(*) AS sessions
    FROM (
        SELECT any_value(group_hash) AS group_hash FROM violations
        JOIN messages USING (message_hash)
        GROUP BY hash(group_hash, hash(session))
    )
    GROUP BY group_hash
),
groups AS (
    SELECT
        group_hash, any_value(server) AS server, any_value(tool) AS tool, any_value(side) AS side,
        any_value(state) AS state, any_value(place) AS path, any_value(error) AS error,
        sum(calls)::BIGINT AS calls, sum(accepted)::BIGINT AS accepted,
        sum(refused)::BIGINT AS refused,
        arg_min({message: message}, call_id) AS example, min(call_id) AS call_id
    FROM messages
    GROUP BY group_hash
)
SELECT
    server, tool, side, state, path, error, calls, sessions, accepted, refused,
    left(example.message, 300) AS example, call_id
FROM groups
JOIN session_counts USING (group_hash)
