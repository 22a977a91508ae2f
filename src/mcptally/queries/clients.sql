-- Which clients called, in which version, and how do calls fare with each?
-- Shows: client, client_version, servers, sessions, calls, tool_calls, error_rate, tool_failures, invalid_input_rate, retry_rate, cancelled, protocol_versions
SELECT
    client, client_version,
    count(DISTINCT server) AS servers,
    count(DISTINCT session) AS sessions,
    count(*) AS calls,
    count(*) FILTER (tools) AS tool_calls,
    count(*) FILTER (tools AND outcome IN
        ('hidden_error', 'tool_error', 'protocol_error', 'timeout', 'no_response')) AS errors,
    -- Of calls of tools that came to an end. What tells clients apart here is mostly what they
    -- were made to call: compare them on the same tools (`--tool`).
    errors / nullif(count(*) FILTER (tools AND outcome IN
        ('ok', 'hidden_error', 'tool_error', 'protocol_error', 'timeout', 'no_response')), 0)
        AS error_rate,
    count(*) FILTER (tools AND verdict = 'tool_failure') AS tool_failures,
    count(*) FILTER (tools AND input_schema_state = 'invalid')
        / nullif(count(*) FILTER (tools AND input_schema_state IN ('valid', 'invalid')), 0)
        AS invalid_input_rate,
    count(*) FILTER (tools AND attempt_why = 'retry') / nullif(tool_calls, 0) AS retry_rate,
    count(*) FILTER (outcome = 'cancelled') AS cancelled,
    list_sort(list(DISTINCT protocol_version) FILTER (protocol_version IS NOT NULL))
        AS protocol_versions,
    list_sort(list(DISTINCT transport) FILTER (transport IS NOT NULL)) AS transports,
    min(requested_at) AS first_seen, max(requested_at) AS last_seen
FROM (SELECT *, method = 'tools/call' AS tools FROM calls WHERE dir = 'c2s')
GROUP BY client, client_version
ORDER BY calls DESC, client, client_version
