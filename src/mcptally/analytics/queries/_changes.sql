-- The rows of `change_points`, but only of the given levels.
-- Of: levels
WITH timed AS NOT MATERIALIZED (
    SELECT
        server, tool, hash(server) AS server_hash, hash(hash(server), hash(tool)) AS tool_hash,
        hash(session) AS session_hash, epoch_us(requested_at)::DOUBLE AS moment,
        outcome <> 'ok' AS failed, verdict, template, call_id
    FROM _tool_calls
    WHERE ended AND requested_at IS NOT NULL
),
-- The times of calls, rounded to 1/8192 of the period they span.
cells AS MATERIALIZED (
    SELECT
        server_hash, tool_hash, session_hash,
        min(moment) AS moment, count(*)::DOUBLE AS n, count(*) FILTER (failed)::DOUBLE AS y
    FROM timed, (SELECT min(moment) AS began, max(moment) - min(moment) AS span FROM timed)
    GROUP BY server_hash, tool_hash, session_hash, floor(8192 * (moment - began) / nullif(span, 0))
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
),
points AS MATERIALIZED (
    SELECT
        level, series, q_value, c."at" AS moment, c.difference AS difference, c.p_value AS p_value,
        lag(c."at") OVER neighbours AS previous, lead(c."at") OVER neighbours AS next
    FROM (SELECT level, series, q_value, unnest(changes) AS c FROM tests WHERE q_value <= 0.05)
    WINDOW neighbours AS (PARTITION BY level, series ORDER BY c."at")
),
-- The calls between the neighbours of each change. Calls are read again for the few series that
-- changed: keeping the texts of all calls takes longer.
around AS MATERIALIZED (
    SELECT p.level, p.series, p.moment, t.moment >= p.moment AS after, t.* EXCLUDE (moment)
    FROM points p
    JOIN timed t ON p.level = 'tool' AND t.tool_hash = p.series
    WHERE (previous IS NULL OR t.moment >= previous) AND (next IS NULL OR t.moment < next)
    UNION ALL
    SELECT p.level, p.series, p.moment, t.moment >= p.moment, t.* EXCLUDE (moment)
    FROM points p
    JOIN timed t ON p.level = 'server' AND t.server_hash = p.series
    WHERE (previous IS NULL OR t.moment >= previous) AND (next IS NULL OR t.moment < next)
),
counts AS (
    SELECT
        level, series, moment, any_value(server) AS server,
        if(level = 'tool', any_value(tool), NULL) AS tool,
        count(*) FILTER (NOT after) AS calls_before, count(*) FILTER (after) AS calls_after,
        count(*) FILTER (NOT after AND NOT failed) / calls_before AS success_rate_before,
        count(*) FILTER (after AND NOT failed) / calls_after AS success_rate_after,
        count(DISTINCT session_hash) FILTER (NOT after) AS sessions_before,
        count(DISTINCT session_hash) FILTER (after) AS sessions_after
    FROM around
    GROUP BY level, series, moment
),
templates AS (
    SELECT
        level, series, moment, verdict, template, min(call_id) AS call_id,
        count(*) FILTER (after) AS after, count(*) FILTER (NOT after) AS before
    FROM around
    WHERE failed
    GROUP BY level, series, moment, verdict, template
),
-- For each verdict: the change in its share of calls, and its most frequent template.
causes AS (
    SELECT
        level, series, moment, verdict,
        abs(sum(t.after) / calls_after - sum(t.before) / calls_before) AS change,
        arg_max(
            {template: template, call_id: call_id},
            {calls: if(success_rate_after < success_rate_before, t.after, t.before),
                template: template}
        ) AS most
    FROM templates t
    JOIN counts USING (level, series, moment)
    GROUP BY level, series, moment, verdict, calls_after, calls_before
),
main_causes AS (
    SELECT
        level, series, moment,
        arg_max({cause: verdict, most: most}, {change: change, cause: verdict}) AS main
    FROM causes
    GROUP BY level, series, moment
)
SELECT
    level, server, tool, make_timestamp(moment::BIGINT) AT TIME ZONE 'UTC' AS changed_at,
    if(p.difference > 0, 'worse', 'better') AS direction,
    success_rate_before, success_rate_after, -p.difference AS difference,
    calls_before, calls_after, sessions_before, sessions_after,
    main.cause AS cause, main.most.template AS template, main.most.call_id AS call_id,
    make_timestamp(previous::BIGINT) AT TIME ZONE 'UTC' AS previous_change,
    make_timestamp(next::BIGINT) AT TIME ZONE 'UTC' AS next_change,
    p_value, q_value
FROM points p
JOIN counts USING (level, series, moment)
LEFT JOIN main_causes USING (level, series, moment)
