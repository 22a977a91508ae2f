-- Shares about foresight with sessions as clusters, per tool or server; as in _rates_of.sql.
-- Of: per, validated
WITH sums AS (
    SELECT
        server, if(per = 'tool', v.tool, NULL) AS tool, session,
        unnest([
            {metric: 'valid_worked', n: sum(valid_and_worked + valid_and_failed),
                y: sum(valid_and_worked)},
            {metric: 'invalid_precision', n: sum(invalid_and_worked + invalid_and_failed),
                y: sum(invalid_and_failed)},
            {metric: 'invalid_recall', n: sum(valid_and_failed + invalid_and_failed),
                y: sum(invalid_and_failed)},
            {metric: 'preventable', n: sum(failed), y: sum(prevented)},
            {metric: 'blocked', n: sum(worked), y: sum(blocked)},
            {metric: 'refusal_precision', n: sum(blocked + refused_and_failed),
                y: sum(refused_and_failed)}
        ], recursive := true)
    FROM _foresight_sums(validated) v
    GROUP BY server, if(per = 'tool', v.tool, NULL), session
),
totals AS (
    SELECT
        server, tool, metric, sum(n)::DOUBLE AS n, sum(y)::DOUBLE AS y,
        count(*) AS sessions, count(*) FILTER (y > 0) AS hit, count(*) FILTER (y < n) AS missed,
        sum(y * y) AS yy, sum(y * n) AS yn, sum(n * n) AS nn
    FROM sums WHERE n > 0 GROUP BY ALL
),
effective AS (
    SELECT
        *, y / n AS mean,
        CASE
            WHEN sessions = 1 THEN 1.0
            WHEN y = 0 OR y = n THEN sessions::DOUBLE
            ELSE n / greatest(1, sessions / (sessions - 1)
                * greatest(0, yy - 2 * y / n * yn + (y / n) ** 2 * nn) / n ** 2
                / (y / n * (1 - y / n) / n))
        END AS n_eff
    FROM totals
),
critical AS (
    SELECT
        *,
        t_quantile(0.975, CASE
            WHEN n_eff >= n OR sessions = 1 OR y = 0 OR y = n THEN 'infinity'::DOUBLE
            ELSE least(sessions - 1, 3 * least(hit, missed))
        END) AS t
    FROM effective
)
SELECT
    server, tool, metric, n, y, sessions, n_eff, mean,
    greatest(0, (mean + t ** 2 / (2 * n_eff)) / (1 + t ** 2 / n_eff)
        - t / (1 + t ** 2 / n_eff)
            * sqrt(mean * (1 - mean) / n_eff + t ** 2 / (4 * n_eff ** 2))) AS low,
    least(1, (mean + t ** 2 / (2 * n_eff)) / (1 + t ** 2 / n_eff)
        + t / (1 + t ** 2 / n_eff)
            * sqrt(mean * (1 - mean) / n_eff + t ** 2 / (4 * n_eff ** 2))) AS high
FROM critical
