-- Which clients made calls, in which versions, and how often do their calls work?
-- Shows: client, client_version, servers, sessions, calls, tool_calls, ok, success_rate, tool_failures, invalid_input_rate, retry_rate, cancelled, protocol_versions
-- None: No call was recorded.
-- Most sessions have one value of each key, so grouping by session first leaves few rows. Grouping
-- by a hash of the session is cheaper than grouping by its name.
WITH parts AS MATERIALIZED (
    SELECT
        client, client_version, hash(session) AS session_hash, server, protocol_version, transport,
        count(*) FILTER (tools) AS tool_calls,
        -- Only tool calls that ended. Clients differ mostly in the tools that they call: compare
        -- them on the same tool (`--tool`).
        count(*) FILTER (tools AND _ended(outcome))
            AS ended,
        count(*) FILTER (tools AND outcome = 'ok') AS ok,
        count(*) FILTER (tools AND _is_tool_failure(verdict)) AS tool_failures,
        count(*) FILTER (tools AND input_schema_state IN ('valid', 'invalid')) AS checked,
        count(*) FILTER (tools AND input_schema_state = 'invalid') AS invalid,
        count(*) FILTER (tools AND attempt_why = 'retry') AS retries,
        count(*) AS calls,
        count(*) FILTER (outcome = 'cancelled') AS cancelled,
        min(requested_at) AS first_seen, max(requested_at) AS last_seen
    FROM (SELECT *, method = 'tools/call' AND continued_by IS NULL AS tools FROM calls WHERE dir = 'c2s')
    GROUP BY ALL
),
bounds AS (
    SELECT
        client, client_version,
        _interval(_moments(ended, ok)) AS successes,
        _interval(_moments(checked, invalid)) AS inputs,
        _interval(_moments(tool_calls, retries)) AS retries
    FROM (
        SELECT
            client, client_version,
            sum(ok)::DOUBLE AS ok, sum(ended)::DOUBLE AS ended,
            sum(invalid)::DOUBLE AS invalid, sum(checked)::DOUBLE AS checked,
            sum(retries)::DOUBLE AS retries, sum(tool_calls)::DOUBLE AS tool_calls
        FROM parts
        GROUP BY client, client_version, session_hash
    )
    GROUP BY client, client_version
),
sums AS (
    SELECT
        client, client_version,
        count(DISTINCT server) AS servers,
        count(DISTINCT session_hash) AS sessions,
        sum(calls)::BIGINT AS calls,
        sum(tool_calls)::BIGINT AS tool_calls,
        sum(ok)::BIGINT AS ok,
        (sum(ended) - sum(ok))::BIGINT AS failed,
        sum(ok) / nullif(sum(ended), 0) AS success_rate,
        sum(tool_failures)::BIGINT AS tool_failures,
        sum(invalid) / nullif(sum(checked), 0) AS invalid_input_rate,
        sum(retries) / nullif(sum(tool_calls), 0) AS retry_rate,
        sum(cancelled)::BIGINT AS cancelled,
        list(DISTINCT protocol_version) FILTER (protocol_version IS NOT NULL) AS protocol_versions,
        list(DISTINCT transport) FILTER (transport IS NOT NULL) AS transports,
        min(first_seen) AS first_seen, max(last_seen) AS last_seen
    FROM parts
    GROUP BY client, client_version
)
SELECT
    s.client, s.client_version, servers, sessions, calls, tool_calls, ok, failed, success_rate,
    b.successes.low AS success_rate_low, b.successes.high AS success_rate_high,
    tool_failures, invalid_input_rate,
    b.inputs.low AS invalid_input_rate_low, b.inputs.high AS invalid_input_rate_high,
    retry_rate, b.retries.low AS retry_rate_low, b.retries.high AS retry_rate_high,
    cancelled,
    list_sort(coalesce(protocol_versions, [])) AS protocol_versions,
    list_sort(coalesce(transports, [])) AS transports,
    first_seen, last_seen
FROM sums s
JOIN bounds b ON b.client IS NOT DISTINCT FROM s.client
    AND b.client_version IS NOT DISTINCT FROM s.client_version
ORDER BY calls DESC, s.client, s.client_version
