-- Which constraints that an input schema lacks would have stopped failing calls, and how many working calls?
-- Shows: server, tool, argument, constraint, failed_stopped, ok_stopped, failed, calls, call_id
-- None: No missing constraint would have stopped a failed call.
-- A constraint is proposed if `contrasts` finds that failing calls have an argument that is empty,
-- negative, missing or of another type, and if the constraint would have stopped at least ten times
-- as many failing calls as successful calls. `new_schema` is the input schema with the constraint.
-- Arguments inside lists are left out, as are schemas that describe an argument elsewhere (`$ref`).
WITH suspected AS (
    SELECT
        server, tool, path, test, value, absent, call_id,
        list_filter(string_split(path, '.'), lambda part: part <> '') AS parts
    FROM contrasts
    WHERE aspect = 'argument' AND NOT contains(path, '[]') AND NOT contains(path, '"')
        AND and_test IS NULL
),
described AS (
    SELECT
        s.*, c.definition, t.input_schema,
        '/properties/' || array_to_string(parts, '/properties/') AS place,
        '/' || array_to_string(parts, '/') AS pointer,
        json_extract(t.input_schema, place) AS own,
        json_extract_string(own, '/type') AS kind
    FROM suspected s
    JOIN calls c USING (call_id)
    JOIN _archive_tools t
        ON t.definition = c.definition AND t.server IS NOT DISTINCT FROM c.server
    WHERE json_valid(t.input_schema)
),
proposed AS (
    SELECT DISTINCT
        server, tool, definition, path, pointer, parts, input_schema,
        CASE
            WHEN test = 'given' AND absent AND len(parts) = 1 THEN 'required'
            WHEN absent AND test = 'type' AND kind IS NULL THEN 'type'
            WHEN absent THEN NULL
            WHEN test = 'empty' AND kind = 'string' THEN 'minLength'
            WHEN test = 'empty' AND kind = 'array' THEN 'minItems'
            WHEN test = 'empty' AND kind = 'object' THEN 'minProperties'
            WHEN kind NOT IN ('integer', 'number') THEN NULL
            WHEN test = 'sign' AND value = 'negative' OR TRY_CAST(value AS DOUBLE) < 0 THEN 'minimum'
            WHEN test = 'equals' AND TRY_CAST(value AS DOUBLE) = 0 THEN 'exclusiveMinimum'
        END AS keyword,
        CASE keyword
            WHEN 'required' THEN to_json(list_append(
                coalesce(TRY_CAST(json_extract(input_schema, '/required') AS VARCHAR[]), []), path))
            WHEN 'type' THEN to_json(CASE value WHEN 'text' THEN 'string' WHEN 'list' THEN 'array' ELSE value END)
            WHEN 'minimum' THEN '0'
            WHEN 'exclusiveMinimum' THEN '0'
            ELSE '1'
        END AS bound
    FROM described
    WHERE keyword IS NOT NULL AND json_type(own) = 'OBJECT'
        AND json_extract(own, '/' || keyword) IS NULL
        AND NOT (keyword = 'required' AND list_contains(
            coalesce(TRY_CAST(json_extract(input_schema, '/required') AS VARCHAR[]), []), path))
),
checked AS (
    SELECT
        p.*, c.outcome, c.call_id AS call, json_extract(c.arguments, p.pointer) AS sent,
        json_type(sent) AS sent_type, sent_type IN ('DOUBLE', 'BIGINT', 'UBIGINT') AS is_number,
        CASE WHEN json_valid(c.arguments) THEN coalesce(CASE p.keyword
            WHEN 'required' THEN sent IS NULL
            WHEN 'type' THEN NOT CASE p.bound ->> '$'
                WHEN 'string' THEN sent_type = 'VARCHAR'
                WHEN 'number' THEN is_number
                ELSE sent_type = upper(p.bound ->> '$')
            END
            WHEN 'minLength' THEN sent_type = 'VARCHAR' AND sent ->> '$' = ''
            WHEN 'minItems' THEN sent_type = 'ARRAY' AND json_array_length(sent) = 0
            WHEN 'minProperties' THEN sent_type = 'OBJECT' AND len(json_keys(sent)) = 0
            WHEN 'minimum' THEN is_number AND TRY_CAST(sent AS DOUBLE) < 0
            ELSE is_number AND TRY_CAST(sent AS DOUBLE) <= 0
        END, false) END AS violates
    FROM proposed p
    JOIN calls c ON c.definition = p.definition AND c.server IS NOT DISTINCT FROM p.server
    WHERE c.method = 'tools/call' AND c.dir = 'c2s' AND _ended(c.outcome)
),
-- Grouped by `violates`, which is null if the arguments are not JSON, to parse them only once.
counted AS (
    SELECT
        server, tool, definition, path, keyword, violates,
        any_value(bound) AS bound, any_value(input_schema) AS input_schema,
        any_value(parts) AS parts, count(*) AS calls, count(*) FILTER (outcome = 'ok') AS ok,
        count(*) FILTER (_failed(outcome)) AS failed,
        min(call) FILTER (_failed(outcome)) AS call
    FROM checked
    GROUP BY server, tool, definition, path, keyword, violates
)
SELECT
    server, tool, path AS argument, keyword || ': ' || any_value(bound) AS "constraint",
    coalesce(sum(c.failed) FILTER (violates), 0)::BIGINT AS failed_stopped,
    coalesce(sum(c.ok) FILTER (violates), 0)::BIGINT AS ok_stopped,
    sum(c.failed) FILTER (violates IS NOT NULL)::BIGINT AS failed,
    sum(c.calls) FILTER (violates IS NOT NULL)::BIGINT AS calls,
    json_merge_patch(any_value(input_schema), CASE keyword
        WHEN 'required' THEN '{"required":' || any_value(bound) || '}'
        ELSE list_reduce(
            list_reverse(any_value(parts)),
            lambda inner_schema, part:
                '{"properties":{' || to_json(part) || ':' || inner_schema || '}}',
            '{"' || keyword || '":' || any_value(bound) || '}'
        )
    END)::VARCHAR AS new_schema,
    min(call) FILTER (violates) AS call_id
FROM counted c
GROUP BY server, tool, definition, path, keyword
HAVING failed_stopped >= 3 AND ok_stopped * 10 <= failed_stopped
ORDER BY failed_stopped DESC, server, tool, argument, "constraint"
