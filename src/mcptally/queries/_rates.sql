-- Means and shares with sessions as clusters, per tool or server (level) and metric.
-- Miller 2024 (arXiv 2411.00640): p = K/N, u = y - p n a session, V = G/(G-1) sum(u^2)/N^2.
WITH totals AS (
    SELECT
        level, server, tool, metric,
        metric LIKE '%\_rate' ESCAPE '\' AS share,
        sum(n) AS n, sum(y) AS y, count(*) AS sessions,
        sum(y * y) AS yy, sum(y * n) AS yn, sum(n * n) AS nn,
        count(*) FILTER (y > 0) AS hit,
        count(*) FILTER (y < n) AS missed
    FROM _sums
    GROUP BY ALL
),
spread AS (
    SELECT
        *,
        y / n AS mean,
        CASE WHEN sessions > 1 THEN
            sessions / (sessions - 1)
                * greatest(0, yy - 2 * y / n * yn + (y / n) ** 2 * nn) / n ** 2
        END AS variance
    FROM totals
),
effective AS (
    SELECT
        *,
        CASE
            WHEN NOT share THEN NULL
            WHEN sessions = 1 THEN 1.0
            -- No spread to measure: as if each session were one call.
            WHEN y = 0 OR y = n THEN sessions::DOUBLE
            ELSE n / greatest(1, variance / (mean * (1 - mean) / n))
        END AS n_eff
    FROM spread
),
critical AS (
    SELECT
        *,
        -- A variance estimated from few sessions, or few with both ends, earns Student's t:
        -- docs/explanation/statistics.md.
        CASE
            WHEN share AND (n_eff >= n OR sessions = 1 OR y = 0 OR y = n) THEN 'infinity'::DOUBLE
            WHEN share THEN greatest(1, least(n ** 2 / nn - 1, 3 * least(hit, missed)))
            WHEN sessions > 1 THEN sessions - 1
        END AS df,
        t_quantile(0.975, df) AS t
    FROM effective
),
wilson AS (
    SELECT
        *,
        (mean + t ** 2 / (2 * n_eff)) / (1 + t ** 2 / n_eff) AS centre,
        t / (1 + t ** 2 / n_eff)
            * sqrt(mean * (1 - mean) / n_eff + t ** 2 / (4 * n_eff ** 2)) AS half
    FROM critical
)
SELECT
    level, server, tool, metric, share, n, y, sessions, hit, missed,
    mean, variance, n_eff, df, t, yy, yn, nn,
    if(share, greatest(0, centre - half), mean - t * sqrt(variance)) AS low,
    if(share, least(1, centre + half), mean + t * sqrt(variance)) AS high
FROM wilson
