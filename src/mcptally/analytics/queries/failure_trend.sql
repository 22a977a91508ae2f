-- How does the failure rate of tools and servers move by hour, day and week, and is it alarming?
-- Shows: period, level, server, tool, start, failure_rate, judged_calls, sessions, baseline_rate, breach, alarm
-- An alarm needs two of the last three periods beyond their limit. The limit of a period is set so
-- that, where nothing changes, one look a day raises a false alarm in a year once in twenty tools
-- at most (a breach by chance: 0.6 %), and the baseline is what came before those three periods.
WITH counts AS NOT MATERIALIZED (
    SELECT
        server, tool, recording, hash(session) AS visit,
        hash(server) AS home, hash(hash(server), hash(tool)) AS kind,
        hour AT TIME ZONE 'UTC' AS hour, judged::DOUBLE AS n, failed::DOUBLE AS y
    FROM usage
    WHERE judged > 0 AND hour IS NOT NULL
),
lengths AS (SELECT unnest(['hour', 'day', 'week']) AS period),
-- Most sessions end within their hour: what they add to it they add to its day and its week.
longer AS MATERIALIZED (
    SELECT visit FROM counts GROUP BY visit
    HAVING min(hour) <> max(hour) OR min(hash(recording)) <> max(hash(recording))
),
visits AS (
    SELECT 'hour' AS period, 'tool' AS level, kind, server, tool, hour AS start, n, y
    FROM counts
    ANTI JOIN longer USING (visit)
    UNION ALL
    SELECT 'hour', 'server', home, any_value(server), NULL, hour, sum(n), sum(y)
    FROM counts
    ANTI JOIN longer USING (visit)
    GROUP BY home, visit, hour
    UNION ALL
    SELECT period || 's', 'tool', kind, any_value(server), any_value(tool),
        date_trunc(period, hour) AS start, sum(n), sum(y)
    FROM counts SEMI JOIN longer USING (visit), lengths
    GROUP BY period, kind, visit, start
    UNION ALL
    SELECT period || 's', 'server', home, any_value(server), NULL,
        date_trunc(period, hour) AS start, sum(n), sum(y)
    FROM counts SEMI JOIN longer USING (visit), lengths
    GROUP BY period, home, visit, start
),
moments AS (
    SELECT
        period, level, kind, any_value(server) AS server, any_value(tool) AS tool, start,
        sum(n) AS n, sum(y) AS y, count(*) AS g,
        count(*) FILTER (y > 0) AS hit, count(*) FILTER (y < n) AS missed,
        sum(y * y) AS yy, sum(y * n) AS yn, sum(n * n) AS nn
    FROM visits
    GROUP BY period, level, kind, start
),
periods AS (
    SELECT
        l.period, level, kind, any_value(server) AS server, any_value(tool) AS tool,
        date_trunc(l.period, m.start) AS start, sum(n) AS n, sum(y) AS y,
        sum(g)::BIGINT AS g, sum(hit)::BIGINT AS hit, sum(missed)::BIGINT AS missed,
        sum(yy) AS yy, sum(yn) AS yn, sum(nn) AS nn
    FROM moments m
    JOIN lengths l ON m.period = 'hour' OR m.period = l.period || 's'
    GROUP BY l.period, level, kind, date_trunc(l.period, m.start)
),
baselines AS (
    SELECT
        *,
        count(*) OVER before AS earlier,
        sum(n) OVER before AS bn, sum(y) OVER before AS b_y, sum(g) OVER before AS bg,
        sum(yy) OVER before AS byy, sum(yn) OVER before AS byn, sum(nn) OVER before AS bnn
    FROM periods
    WINDOW before AS (
        PARTITION BY period, level, kind ORDER BY start
        ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING
    )
),
spreads AS (
    SELECT
        *,
        y / n AS p,
        rate_interval(n, y, nn, yy, yn, g, least(hit, missed)) AS rate,
        b_y / bn AS bp,
        -- Baseline and period as one population: what spread would chance alone make?
        (y + b_y) / (n + bn) AS pooled,
        greatest(pooled * (1 - pooled) / n, if(g > 1, g / (g - 1) / n ** 2
            * (yy - 2 * pooled * yn + pooled ** 2 * nn - (y - pooled * n) ** 2 / g), 0))
            AS null_variance,
        greatest(pooled * (1 - pooled) / bn, if(bg > 1, bg / (bg - 1) / bn ** 2
            * (byy - 2 * pooled * byn + pooled ** 2 * bnn - (b_y - pooled * bn) ** 2 / bg), 0))
            AS b_null_variance
    FROM baselines
),
judged AS (
    SELECT
        *,
        -- Too little to judge by: fewer than 5 sessions now, or 20 before.
        g >= 5 AND bg >= 20 AND earlier >= 3 AS comparable,
        comparable AND p - bp >= 0.05
            AND (p - bp) / sqrt(null_variance + b_null_variance) > t_quantile(0.994, g - 1)
            AS breach
    FROM spreads
)
SELECT
    period, level, server, tool, start, p AS failure_rate,
    rate.low AS failure_rate_low, rate.high AS failure_rate_high,
    n::BIGINT AS judged_calls, y::BIGINT AS tool_failures, g AS sessions, rate.n_eff AS n_eff,
    bp AS baseline_rate, bn::BIGINT AS baseline_calls, comparable, coalesce(breach, false) AS breach,
    coalesce(breach, false) AND count(*) FILTER (breach) OVER recent >= 2 AS alarm
FROM judged
WINDOW recent AS (
    PARTITION BY period, level, kind ORDER BY start
    ROWS BETWEEN 2 PRECEDING AND CURRENT ROW
)
ORDER BY period, level, server, tool, start
