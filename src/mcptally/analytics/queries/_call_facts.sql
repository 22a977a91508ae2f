-- Calls with facts about each call and its context, as texts "aspect test value".
-- Of: wanted
-- `wanted` is a table with columns of `calls`, and columns about their context.
SELECT
    *,
    -- Where the first violation of the schema is, written like argument paths; for a version, the client.
    [
        nullif(replace(regexp_replace(substring(input_schema_path, 2), '/\d+\b', '[]', 'g'), '/', '.'), ''),
        NULL, NULL, NULL, client
    ] AS paths,
    [
        'schema at ' || if(input_schema_state = 'invalid' AND length(input_schema_path) > 1, 'yes', NULL),
        'schema invalid ' || if(input_schema_state = 'invalid', 'yes', NULL),
        'model equals ' || model,
        'client equals ' || client,
        'client_version equals ' || client_version,
        'server_version equals ' || server_version,
        'protocol_version equals ' || protocol_version,
        'transport equals ' || transport,
        'request_bytes at_least ' || if(request_bytes >= 10000, '10000', NULL),
        'request_bytes at_least ' || if(request_bytes >= 100000, '100000', NULL),
        'previous equals ' || previous,
        -- Failures of the same tool follow each other whatever the cause.
        'previous failed ' || if(_failed(ended_as) AND previous <> tool, 'yes', NULL),
        'place first ' || if(place = 1, 'yes', NULL),
        'place late ' || if(place > 10, 'yes', NULL),
        'concurrent open ' || if(busy_until > requested_at, 'yes', NULL),
        'others fail ' || if(others_fail, 'yes', NULL),
        'latency at_least ' || if(latency_ms >= 10000, '10', NULL),
        'hour equals ' || hour(requested_at)::VARCHAR
    ] AS facts
FROM query_table(wanted)
