-- How many tokens (bytes over 4 by default) of a model's context do each tool's definition and results take?
-- Shows: server, tool, total_tokens, total_rate, definition_tokens, sessions, listed_tokens, calls, response_tokens_total, response_tokens_p50, response_tokens_p95
-- None: No tool was listed or called.
WITH listed AS (
    SELECT
        server, tool,
        arg_max(tokens, (last_seen, definition)) AS definition_tokens,
        count(*) AS versions,
        sum(sessions)::BIGINT AS sessions,
        -- A client reads a definition at least once in each session that lists it.
        sum(tokens * sessions)::BIGINT AS listed_tokens
    FROM tools
    GROUP BY ALL
),
results AS (
    SELECT
        any_value(server) AS server, any_value(tool) AS tool, count(*) AS calls,
        sum(response_tokens)::BIGINT AS response_tokens_total,
        quantile_cont(response_tokens, [0.50, 0.95]) AS q,
        q[1] AS response_tokens_p50, q[2] AS response_tokens_p95,
        max(response_tokens) AS response_tokens_max,
        arg_max(call_id, (response_tokens, call_id)) AS call_id
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
    GROUP BY hash(hash(server), hash(tool))
),
costs AS (
    SELECT
        coalesce(l.server, r.server) AS server, coalesce(l.tool, r.tool) AS tool,
        coalesce(listed_tokens, 0) + coalesce(response_tokens_total, 0) AS total_tokens,
        definition_tokens, versions, coalesce(sessions, 0) AS sessions,
        coalesce(listed_tokens, 0) AS listed_tokens,
        coalesce(calls, 0) AS calls, coalesce(response_tokens_total, 0) AS response_tokens_total,
        response_tokens_p50, response_tokens_p95, response_tokens_max, call_id
    FROM listed l
    FULL JOIN results r ON r.server IS NOT DISTINCT FROM l.server AND r.tool = l.tool
)
SELECT
    server, tool, total_tokens,
    -- The tool's share of its server's tokens.
    total_tokens / nullif(sum(total_tokens) OVER (PARTITION BY server), 0) AS total_rate,
    * EXCLUDE (server, tool, total_tokens)
FROM costs
ORDER BY total_tokens DESC, server, tool
