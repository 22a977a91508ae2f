-- When did the success rate of a tool or server change, and why?
-- Shows: level, server, tool, changed_at, success_rate_before, success_rate_after, calls_before, calls_after, sessions_before, sessions_after, cause, template, next_change, q_value
-- None: No success rate changed by more than chance explains.
WITH used AS MATERIALIZED (FROM _tool_sessions),
points AS MATERIALIZED (FROM _changes(['tool', 'server'], 'used')),
-- The calls between the neighbours of each change. Calls are read again for the few series that
-- changed: keeping the texts of all calls takes longer.
around AS MATERIALIZED (
    SELECT p.level, p.series, p.moment, t.moment >= p.moment AS after, t.* EXCLUDE (moment)
    FROM points p
    JOIN _timed_calls t ON p.level = 'tool' AND t.tool_hash = p.series
    WHERE (previous IS NULL OR t.moment >= previous) AND (next IS NULL OR t.moment < next)
    UNION ALL
    SELECT p.level, p.series, p.moment, t.moment >= p.moment, t.* EXCLUDE (moment)
    FROM points p
    JOIN _timed_calls t ON p.level = 'server' AND t.server_hash = p.series
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
ORDER BY level, changed_at, server, tool
