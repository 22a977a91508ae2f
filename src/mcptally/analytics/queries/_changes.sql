-- The times at which the success rates of tools or servers changed.
-- Of: levels, used
-- `levels` is a list with `tool`, `server` or both, and `used` a table with the rows of
-- `_tool_sessions`. `series` is the hash of the tool or the server.
WITH period AS MATERIALIZED (
    SELECT epoch_us(min(started))::DOUBLE AS began, epoch_us(max(latest)) - began AS span
    FROM query_table(used)
),
timed AS NOT MATERIALIZED (
    SELECT
        * EXCLUDE (latest),
        floor(8192 * (moment - began) / nullif(span, 0))
            IS DISTINCT FROM floor(8192 * (latest - began) / nullif(span, 0)) OR ended < calls
            AS is_divided
    FROM (
        SELECT
            server_hash, tool_hash, session_hash, epoch_us(started)::DOUBLE AS moment,
            epoch_us(latest)::DOUBLE AS latest, calls, ended, ok
        FROM query_table(used)
        WHERE started IS NOT NULL
    ), period
),
divided AS MATERIALIZED (SELECT DISTINCT session_hash FROM timed WHERE is_divided),
-- DuckDB skips rows of `calls` while it reads them if it compares names, not hashes. It expects one
-- row from a list, and thus keeps these rows, not the calls, in a hash table.
divided_names AS (
    SELECT unnest(list(DISTINCT session)) AS session
    FROM _archive_usage
    SEMI JOIN divided ON session_hash = hash(session)
),
-- A session's calls to a tool at about the same time: within 1/8192 of the period of all calls. Only
-- sessions with calls at several times, or calls that did not end, are read from `calls`.
cells AS MATERIALIZED (
    SELECT
        server_hash, tool_hash, session_hash, moment, ended::DOUBLE AS n, (ended - ok)::DOUBLE AS y
    FROM timed
    ANTI JOIN divided USING (session_hash)
    UNION ALL
    SELECT
        any_value(server_hash), tool_hash, session_hash, min(moment), count(*)::DOUBLE,
        count(*) FILTER (failed)::DOUBLE
    FROM _timed_calls
    SEMI JOIN divided_names USING (session), period
    GROUP BY tool_hash, session_hash, floor(8192 * (moment - began) / nullif(span, 0))
),
series AS (
    SELECT
        'tool' AS level, tool_hash AS series,
        change_points(list(moment), list(n), list(y), list(tool_hash), list(session_hash)) AS changes
    FROM cells
    GROUP BY tool_hash
    UNION ALL
    SELECT
        'server', server_hash,
        change_points(list(moment), list(n), list(y), list(tool_hash), list(session_hash))
    FROM cells
    WHERE list_contains(levels, 'server')
    GROUP BY server_hash
    HAVING count(DISTINCT tool_hash) > 1
),
-- Benjamini and Hochberg over all tools, and over all servers. The p-value of a series is that of
-- its most certain change, times its number of changes.
ranked AS (
    SELECT
        *, list_min(list_transform(changes, lambda c: c.p_value)) * len(changes) AS series_p,
        count(*) OVER (PARTITION BY level) AS tested,
        rank() OVER (PARTITION BY level ORDER BY series_p) AS place
    FROM series
),
tests AS (
    SELECT
        level, series, changes,
        min(least(1, series_p * tested / place)) OVER (
            PARTITION BY level ORDER BY place RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS q_value
    FROM ranked
    WHERE len(changes) > 0
)
SELECT
    level, series, q_value, c."at" AS moment, c.difference AS difference, c.p_value AS p_value,
    lag(c."at") OVER neighbours AS previous, lead(c."at") OVER neighbours AS next
FROM (SELECT level, series, q_value, unnest(changes) AS c FROM tests WHERE q_value <= 0.05)
WINDOW neighbours AS (PARTITION BY level, series ORDER BY c."at")
