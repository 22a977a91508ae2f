-- Each value in the arguments of calls. The path `items[].name` stands for every name in the list.
-- Of: documents
-- `documents` is a table with tool_hash, arguments_hash and arguments.
SELECT
    tool_hash, arguments_hash, type,
    regexp_replace(substring(fullkey, 3), '\[\d+\]', '[]', 'g') AS path, atom ->> '$' AS said,
    if(type = 'ARRAY', json_array_length(arguments, fullkey), NULL) AS items,
    if(type = 'OBJECT', len(json_keys(arguments, fullkey)), NULL) AS members,
    TRY_CAST(if(type IN ('DOUBLE', 'BIGINT', 'UBIGINT'), said, NULL) AS DOUBLE) AS number
FROM (
    FROM query_table(documents)
    WHERE strlen(arguments) <= 100000 AND json_valid(arguments)
), json_tree(arguments)
WHERE fullkey <> '$' AND length(fullkey) <= 120
    AND length(fullkey) - length(replace(fullkey, '.', '')) <= 4
