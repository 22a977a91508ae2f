-- Which clients called, in which version, and how do calls fare with each?
-- Shows: client, client_version, servers, sessions, calls, tool_calls, error_rate, tool_failures, invalid_input_rate, retry_rate, cancelled, protocol_versions
WITH visits AS (
    SELECT
        client, client_version, session,
        count(*) FILTER (tools) AS tool_calls,
        -- Of calls of tools that came to an end. What tells clients apart here is mostly what they
        -- were made to call: compare them on the same tools (`--tool`).
        count(*) FILTER (tools AND outcome IN
            ('ok', 'hidden_error', 'tool_error', 'protocol_error', 'timeout', 'no_response'))
            AS ended,
        count(*) FILTER (tools AND outcome IN
            ('hidden_error', 'tool_error', 'protocol_error', 'timeout', 'no_response')) AS errors,
        count(*) FILTER (tools AND verdict = 'tool_failure') AS tool_failures,
        count(*) FILTER (tools AND input_schema_state IN ('valid', 'invalid')) AS checked,
        count(*) FILTER (tools AND input_schema_state = 'invalid') AS invalid,
        count(*) FILTER (tools AND attempt_why = 'retry') AS retries,
        count(*) AS calls,
        count(*) FILTER (outcome = 'cancelled') AS cancelled,
        list(DISTINCT server) AS servers,
        list(DISTINCT protocol_version) FILTER (protocol_version IS NOT NULL) AS protocol_versions,
        list(DISTINCT transport) FILTER (transport IS NOT NULL) AS transports,
        min(requested_at) AS first_seen, max(requested_at) AS last_seen
    FROM (SELECT *, method = 'tools/call' AS tools FROM calls WHERE dir = 'c2s')
    GROUP BY client, client_version, session
)
SELECT * EXCLUDE (error_bounds, input_bounds, retry_bounds) FROM (
SELECT
    client, client_version,
    len(list_filter(list_distinct(flatten(list(servers))), lambda s: s IS NOT NULL)) AS servers,
    count(DISTINCT session) AS sessions,
    sum(calls)::BIGINT AS calls,
    sum(tool_calls)::BIGINT AS tool_calls,
    sum(errors)::BIGINT AS errors,
    sum(errors) / nullif(sum(ended), 0) AS error_rate,
    rate_bounds(list(errors::DOUBLE), list(ended::DOUBLE)) AS error_bounds,
    error_bounds[1] AS error_rate_low, error_bounds[2] AS error_rate_high,
    sum(tool_failures)::BIGINT AS tool_failures,
    sum(invalid) / nullif(sum(checked), 0) AS invalid_input_rate,
    rate_bounds(list(invalid::DOUBLE), list(checked::DOUBLE)) AS input_bounds,
    input_bounds[1] AS invalid_input_rate_low, input_bounds[2] AS invalid_input_rate_high,
    sum(retries) / nullif(sum(tool_calls), 0) AS retry_rate,
    rate_bounds(list(retries::DOUBLE), list(tool_calls::DOUBLE)) AS retry_bounds,
    retry_bounds[1] AS retry_rate_low, retry_bounds[2] AS retry_rate_high,
    sum(cancelled)::BIGINT AS cancelled,
    list_sort(list_distinct(flatten(list(protocol_versions)))) AS protocol_versions,
    list_sort(list_distinct(flatten(list(transports)))) AS transports,
    min(first_seen) AS first_seen, max(last_seen) AS last_seen
FROM visits
GROUP BY client, client_version
)
ORDER BY calls DESC, client, client_version
