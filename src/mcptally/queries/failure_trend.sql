-- How does the failure rate of tools and servers move by hour, day and week, and is it alarming?
-- Shows: period, level, server, tool, start, failure_rate, judged_calls, sessions, baseline_rate, breach, alarm
-- An alarm needs two of the last three periods beyond their limit. The limit of a period is set so
-- that, where nothing changes, one look a day raises a false alarm in a year once in twenty tools
-- at most (a breach by chance: 0.6 %), and the baseline is what came before those three periods.
WITH sums AS (
    SELECT
        period, if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool, session,
        date_trunc(period, hour AT TIME ZONE 'UTC') AS start,
        sum(judged)::DOUBLE AS n, sum(failed)::DOUBLE AS y
    FROM usage, (SELECT unnest(['hour', 'day', 'week']) AS period)
    WHERE judged > 0 AND hour IS NOT NULL
    GROUP BY GROUPING SETS ((period, server, tool, session, start), (period, server, session, start))
),
periods AS (
    SELECT
        period, level, server, tool, start, sum(n) AS n, sum(y) AS y, count(*) AS g,
        count(*) FILTER (y > 0) AS hit, count(*) FILTER (y < n) AS missed,
        sum(y * y) AS yy, sum(y * n) AS yn, sum(n * n) AS nn
    FROM sums
    GROUP BY ALL
),
baselines AS (
    SELECT
        *,
        count(*) OVER before AS earlier,
        sum(n) OVER before AS bn, sum(y) OVER before AS b_y, sum(g) OVER before AS bg,
        sum(yy) OVER before AS byy, sum(yn) OVER before AS byn, sum(nn) OVER before AS bnn
    FROM periods
    WINDOW before AS (
        PARTITION BY period, level, server, tool ORDER BY start
        ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING
    )
),
spreads AS (
    SELECT
        *,
        y / n AS p,
        CASE WHEN g > 1 AND y > 0 AND y < n
            THEN g / (g - 1) * greatest(0, yy - 2 * p * yn + p ** 2 * nn) / n ** 2 END AS variance,
        CASE WHEN g = 1 THEN 1.0 WHEN y = 0 OR y = n THEN g::DOUBLE
            ELSE n / greatest(1, variance / (p * (1 - p) / n)) END AS n_eff,
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
        cluster_t(n, nn, n_eff, g, least(hit, missed)) AS t,
        -- Too little to judge by: fewer than 5 sessions now, or 20 before.
        g >= 5 AND bg >= 20 AND earlier >= 3 AS comparable,
        comparable AND p - bp >= 0.05
            AND (p - bp) / sqrt(null_variance + b_null_variance) > t_quantile(0.994, g - 1)
            AS breach
    FROM spreads
)
SELECT
    period, level, server, tool, start, p AS failure_rate,
    wilson_low(p, n_eff, t) AS failure_rate_low, wilson_high(p, n_eff, t) AS failure_rate_high,
    n::BIGINT AS judged_calls, y::BIGINT AS tool_failures, g AS sessions, n_eff,
    bp AS baseline_rate, bn::BIGINT AS baseline_calls, comparable, coalesce(breach, false) AS breach,
    coalesce(breach, false) AND count(*) FILTER (breach) OVER recent >= 2 AS alarm
FROM judged
WINDOW recent AS (
    PARTITION BY period, level, server, tool ORDER BY start
    ROWS BETWEEN 2 PRECEDING AND CURRENT ROW
)
ORDER BY period, level, server, tool, start
