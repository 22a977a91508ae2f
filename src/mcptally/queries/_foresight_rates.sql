-- Shares about foresight with sessions as clusters, per server or tool (level); as in _rates.sql.
WITH sums AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool, session,
        unnest([
            {metric: 'valid_worked', n: count(*) FILTER (validated_as AND judged),
                y: count(*) FILTER (validated_as AND judged AND worked)},
            {metric: 'invalid_precision', n: count(*) FILTER (NOT validated_as AND judged),
                y: count(*) FILTER (NOT validated_as AND judged AND failed)},
            {metric: 'invalid_recall',
                n: count(*) FILTER (validated_as IS NOT NULL AND judged AND failed),
                y: count(*) FILTER (NOT validated_as AND judged AND failed)},
            {metric: 'preventable', n: count(*) FILTER (failed),
                y: count(*) FILTER (failed AND refused)},
            {metric: 'blocked', n: count(*) FILTER (worked),
                y: count(*) FILTER (worked AND refused)},
            {metric: 'refusal_precision', n: count(*) FILTER (judged AND refused),
                y: count(*) FILTER (judged AND refused AND failed)}
        ], recursive := true)
    FROM (SELECT *, (worked OR failed) AND NOT unforeseeable AS judged FROM _foresight)
    GROUP BY GROUPING SETS ((server, tool, session), (server, session))
),
totals AS (
    SELECT
        level, server, tool, metric, sum(n)::DOUBLE AS n, sum(y)::DOUBLE AS y,
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
    level, server, tool, metric, n, y, sessions, n_eff, mean,
    greatest(0, (mean + t ** 2 / (2 * n_eff)) / (1 + t ** 2 / n_eff)
        - t / (1 + t ** 2 / n_eff)
            * sqrt(mean * (1 - mean) / n_eff + t ** 2 / (4 * n_eff ** 2))) AS low,
    least(1, (mean + t ** 2 / (2 * n_eff)) / (1 + t ** 2 / n_eff)
        + t / (1 + t ** 2 / n_eff)
            * sqrt(mean * (1 - mean) / n_eff + t ** 2 / (4 * n_eff ** 2))) AS high
FROM critical
