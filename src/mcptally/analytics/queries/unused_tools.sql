-- Which tools are listed and never called, and what does listing them cost?
-- Shows: server, tool, sessions, definition_tokens, listed_tokens, server_listed_rate, server_calls, last_seen
-- None: No listed tool was left uncalled.
WITH listed AS (
    SELECT
        server, tool,
        sum(sessions)::BIGINT AS sessions, sum(listings)::BIGINT AS listings,
        arg_max(tokens, (last_seen, definition)) AS definition_tokens,
        sum(tokens * sessions)::BIGINT AS listed_tokens,
        min(first_seen) AS first_seen, max(last_seen) AS last_seen
    FROM tools
    GROUP BY ALL
),
shares AS (
    SELECT
        *, listed_tokens / nullif(sum(listed_tokens) OVER (PARTITION BY server), 0)
            AS server_listed_rate
    FROM listed
),
called AS (
    SELECT server, tool, count(*) AS n
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
    GROUP BY ALL
)
SELECT
    s.server, s.tool, s.sessions, s.listings, s.definition_tokens, s.listed_tokens,
    -- Share of the tokens in the server's list that removing this tool would save.
    s.server_listed_rate,
    (SELECT coalesce(sum(n), 0)::BIGINT FROM called c WHERE c.server IS NOT DISTINCT FROM s.server)
        AS server_calls,
    s.first_seen, s.last_seen
FROM shares s
ANTI JOIN called c ON c.server IS NOT DISTINCT FROM s.server AND c.tool = s.tool
ORDER BY listed_tokens DESC, s.server, s.tool
