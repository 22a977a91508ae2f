-- Shares about foresight with sessions as clusters, per server; as in _rates_of.sql.
-- Moments of all shares are summed side by side: a row a session and share would be what costs.
WITH sums AS (
    SELECT
        server,
        valid_and_worked::DOUBLE AS valid_and_worked,
        (valid_and_worked + valid_and_failed)::DOUBLE AS valid_n,
        invalid_and_failed::DOUBLE AS invalid_and_failed,
        (invalid_and_worked + invalid_and_failed)::DOUBLE AS invalid_n,
        (valid_and_failed + invalid_and_failed)::DOUBLE AS broken_n
    FROM _foresight_sums
),
moments AS (
    SELECT
        server,
        unnest([
            {metric: 'valid_worked', n: sum(valid_n), y: sum(valid_and_worked),
                yy: sum(valid_and_worked * valid_and_worked), yn: sum(valid_and_worked * valid_n), nn: sum(valid_n * valid_n),
                sessions: sum(least(valid_n, 1)), hit: sum(least(valid_and_worked, 1)),
                missed: sum(least(valid_n - valid_and_worked, 1))},
            {metric: 'invalid_precision', n: sum(invalid_n), y: sum(invalid_and_failed),
                yy: sum(invalid_and_failed * invalid_and_failed), yn: sum(invalid_and_failed * invalid_n), nn: sum(invalid_n * invalid_n),
                sessions: sum(least(invalid_n, 1)), hit: sum(least(invalid_and_failed, 1)),
                missed: sum(least(invalid_n - invalid_and_failed, 1))},
            {metric: 'invalid_recall', n: sum(broken_n), y: sum(invalid_and_failed),
                yy: sum(invalid_and_failed * invalid_and_failed), yn: sum(invalid_and_failed * broken_n), nn: sum(broken_n * broken_n),
                sessions: sum(least(broken_n, 1)), hit: sum(least(invalid_and_failed, 1)),
                missed: sum(least(broken_n - invalid_and_failed, 1))}
        ], recursive := true)
    FROM sums GROUP BY server
),
totals AS (
    SELECT
        * REPLACE (sessions::BIGINT AS sessions, hit::BIGINT AS hit, missed::BIGINT AS missed)
    FROM moments WHERE n > 0
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
        cluster_t(n, nn, n_eff, sessions, least(hit, missed)) AS t
    FROM effective
)
SELECT
    server, metric, n, y, sessions, n_eff, mean,
    wilson_low(mean, n_eff, t) AS low, wilson_high(mean, n_eff, t) AS high
FROM critical
