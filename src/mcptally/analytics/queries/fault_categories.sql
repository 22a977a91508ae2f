-- How many sessions and servers have faults of each category of a published taxonomy?
-- Shows: ecosystem, category, sessions, of_sessions, session_share, servers, of_servers, calls, published_share, call_id
-- None: No session was recorded.
-- The taxonomy is that of arXiv 2606.05339; `published_share` is the category's share of its 837
-- issue threads, quoted from third-party notes: see docs/explanation/public-servers.md.
-- `session_share` is the share of sessions with at least one such fault; its interval is clustered
-- by server. `ecosystem`: the kind of program that starts the servers; null for all.
WITH published(category, place, threads) AS (
    VALUES
        ('Tool', 1, 194), ('Data & Schema', 2, 147), ('State & Configuration', 3, 143),
        ('Session Lifecycle', 4, 65), ('Resource', 5, 58), ('Security', 6, 54),
        ('Model & Provider', 7, 48), ('Base Protocol', 8, 45), ('Transport Layer', 9, 45),
        ('Prompt', 10, 22), ('Timeout & Cancellation', 11, 16),
        ('outside: request refused', 12, NULL), ('outside: infrastructure', 13, NULL),
        ('outside: cause unknown', 14, NULL)
),
faults AS MATERIALIZED (FROM _faults),
runs AS MATERIALIZED (
    SELECT
        server_hash, session_hash, any_value(server) AS server,
        _ecosystem(any_value(command), any_value(transport)) AS ecosystem
    FROM faults
    GROUP BY server_hash, session_hash
),
groups AS (
    SELECT NULL AS ecosystem, server_hash, session_hash FROM runs
    UNION ALL
    SELECT ecosystem, server_hash, session_hash FROM runs
),
marked AS (
    SELECT
        g.ecosystem, p.category, g.server_hash, count(*)::DOUBLE AS n,
        count(f.category)::DOUBLE AS y, coalesce(sum(f.calls), 0) AS calls,
        min(f.call_id) AS call_id
    FROM groups g
    CROSS JOIN published p
    LEFT JOIN (
        SELECT server_hash, session_hash, category, sum(calls) AS calls, min(call_id) AS call_id
        FROM faults
        GROUP BY server_hash, session_hash, category
    ) f ON f.server_hash IS NOT DISTINCT FROM g.server_hash AND f.session_hash = g.session_hash
        AND f.category = p.category
    GROUP BY g.ecosystem, p.category, g.server_hash
),
rates AS (
    SELECT
        ecosystem, category, sum(y)::BIGINT AS sessions, sum(n)::BIGINT AS of_sessions,
        count(*) FILTER (y > 0) AS servers, count(*) AS of_servers, sum(calls)::BIGINT AS calls,
        min(call_id) AS call_id, _interval(_moments(n, y)) AS share
    FROM marked
    GROUP BY ecosystem, category
)
SELECT
    ecosystem, category, sessions, of_sessions, sessions / of_sessions AS session_share,
    share.low AS session_share_low, share.high AS session_share_high,
    _insufficient_data(share) AS insufficient_data,
    servers, of_servers, calls, threads / 837 AS published_share, call_id
FROM rates
JOIN published USING (category)
ORDER BY ecosystem NULLS FIRST, place
