-- Which protocol revisions are in use, how is that known, and how many violations are there of each?
-- Shows: protocol_version, protocol_source, servers, clients, sessions, calls, protocol_errors, unanswered, finding_errors, finding_warnings
-- None: No protocol revision is known.
WITH spoken AS (
    SELECT
        protocol_version, protocol_source,
        count(DISTINCT server) AS servers,
        count(DISTINCT (client, client_version)) FILTER (client IS NOT NULL) AS clients,
        count(DISTINCT session) AS sessions,
        count(*) AS calls,
        count(*) FILTER (method = 'tools/call' AND continued_by IS NULL) AS tool_calls,
        count(*) FILTER (outcome = 'protocol_error') AS protocol_errors,
        count(*) FILTER (_unanswered(outcome)) AS unanswered,
        list_sort(list(DISTINCT transport) FILTER (transport IS NOT NULL)) AS transports
    FROM calls
    GROUP BY ALL
),
found AS (
    SELECT
        c.protocol_version, c.protocol_source,
        count(*) FILTER (f.severity = 'error') AS finding_errors,
        count(*) FILTER (f.severity = 'warning') AS finding_warnings
    FROM findings f
    JOIN calls c USING (call_id)
    -- Only findings about the protocol; violations of a tool's schema are in schema_violations.
    WHERE starts_with(f.rule, 'protocol.')
    GROUP BY ALL
)
SELECT
    s.*, coalesce(finding_errors, 0) AS finding_errors,
    coalesce(finding_warnings, 0) AS finding_warnings
FROM spoken s
LEFT JOIN found f ON f.protocol_version IS NOT DISTINCT FROM s.protocol_version
    AND f.protocol_source IS NOT DISTINCT FROM s.protocol_source
ORDER BY calls DESC, s.protocol_version, s.protocol_source
