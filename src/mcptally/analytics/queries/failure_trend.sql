-- How does the failure rate of tools and servers change by hour, day and week, and is there an alarm?
-- Shows: period, level, server, tool, start, failure_rate, judged_calls, sessions, baseline_rate, breach, alarm
-- An alarm needs two breaches in the last three periods. The baseline is everything before those
-- three periods. The limit makes a breach by chance happen in 0.6 % of the periods, so that with
-- one look per day at most one tool in twenty has a false alarm within a year.
WITH counts AS NOT MATERIALIZED (
    SELECT
        server, tool, recording, hash(session) AS session_hash,
        hash(server) AS server_hash, hash(hash(server), hash(tool)) AS tool_hash,
        hour AT TIME ZONE 'UTC' AS hour, judged::DOUBLE AS n, failed::DOUBLE AS y
    FROM usage
    WHERE judged > 0 AND hour IS NOT NULL
),
lengths AS (SELECT unnest(['hour', 'day', 'week']) AS period),
-- Most sessions lie within one hour, so that their hours can be summed to days and weeks.
long_sessions AS MATERIALIZED (
    SELECT session_hash FROM counts GROUP BY session_hash
    HAVING min(hour) <> max(hour) OR min(hash(recording)) <> max(hash(recording))
),
session_counts AS (
    SELECT 'hour' AS period, 'tool' AS level, tool_hash, server, tool, hour AS start, n, y
    FROM counts
    ANTI JOIN long_sessions USING (session_hash)
    UNION ALL
    SELECT 'hour', 'server', server_hash, any_value(server), NULL, hour, sum(n), sum(y)
    FROM counts
    ANTI JOIN long_sessions USING (session_hash)
    GROUP BY server_hash, session_hash, hour
    UNION ALL
    SELECT period || 's', 'tool', tool_hash, any_value(server), any_value(tool),
        date_trunc(period, hour) AS start, sum(n), sum(y)
    FROM counts SEMI JOIN long_sessions USING (session_hash), lengths
    GROUP BY period, tool_hash, session_hash, start
    UNION ALL
    SELECT period || 's', 'server', server_hash, any_value(server), NULL,
        date_trunc(period, hour) AS start, sum(n), sum(y)
    FROM counts SEMI JOIN long_sessions USING (session_hash), lengths
    GROUP BY period, server_hash, session_hash, start
),
moments AS (
    SELECT
        period, level, tool_hash, any_value(server) AS server, any_value(tool) AS tool, start,
        sum(n) AS n, sum(y) AS y, count(*) AS g,
        count(*) FILTER (y > 0) AS hit, count(*) FILTER (y < n) AS missed,
        sum(y * y) AS yy, sum(y * n) AS yn, sum(n * n) AS nn,
        sum(round(1e6 * y * (n - y) / n)) AS mixed
    FROM session_counts
    GROUP BY period, level, tool_hash, start
),
periods AS (
    SELECT
        l.period, level, tool_hash, any_value(server) AS server, any_value(tool) AS tool,
        date_trunc(l.period, m.start) AS start, sum(n) AS n, sum(y) AS y,
        sum(g)::BIGINT AS g, sum(hit)::BIGINT AS hit, sum(missed)::BIGINT AS missed,
        sum(yy) AS yy, sum(yn) AS yn, sum(nn) AS nn, sum(mixed) AS mixed
    FROM moments m
    JOIN lengths l ON m.period = 'hour' OR m.period = l.period || 's'
    GROUP BY l.period, level, tool_hash, date_trunc(l.period, m.start)
),
baselines AS (
    SELECT
        *,
        count(*) OVER before AS earlier,
        sum(n) OVER before AS bn, sum(y) OVER before AS b_y, sum(g) OVER before AS bg,
        sum(yy) OVER before AS byy, sum(yn) OVER before AS byn, sum(nn) OVER before AS bnn
    FROM periods
    WINDOW before AS (
        PARTITION BY period, level, tool_hash ORDER BY start
        ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING
    )
),
spreads AS (
    SELECT
        *,
        y / n AS p,
        rate_interval(n, y, nn, yy, yn, mixed / 1e6, g, least(hit, missed)) AS rate,
        b_y / bn AS bp,
        -- Variance under the null hypothesis that baseline and period have the same rate.
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
        -- A comparison needs 5 sessions in the period, 20 in the baseline and 3 earlier periods.
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
    bp AS baseline_rate, bn::BIGINT AS baseline_calls, comparable,
    coalesce(breach, false) AS breach,
    coalesce(breach, false) AND count(*) FILTER (breach) OVER recent >= 2 AS alarm
FROM judged
WINDOW recent AS (
    PARTITION BY period, level, tool_hash ORDER BY start
    ROWS BETWEEN 2 PRECEDING AND CURRENT ROW
)
ORDER BY period, level, server, tool, start
