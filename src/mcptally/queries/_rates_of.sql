-- Means and shares with sessions as clusters, per tool or server, and metric.
-- Of: per
-- Miller 2024 (arXiv 2411.00640): p = K/N, u = y - p n a session, V = G/(G-1) sum(u^2)/N^2.
-- Moments of all metrics are summed side by side: twelve rows a session would be what costs.
WITH moments AS (
    SELECT
        any_value(level) AS level, any_value(server) AS server, any_value(tool) AS tool,
        unnest([
            {metric: 'failure_rate', share: true, n: sum(failure_n), y: sum(failure_y),
                yy: sum(failure_y * failure_y), yn: sum(failure_y * failure_n),
                nn: sum(failure_n * failure_n),
                sessions: sum(least(failure_n, 1)), hit: sum(least(failure_y, 1)),
                missed: sum(least(failure_n - failure_y, 1))},
            {metric: 'error_rate', share: true, n: sum(ended_n), y: sum(error_y),
                yy: sum(error_y * error_y), yn: sum(error_y * ended_n),
                nn: sum(ended_n * ended_n),
                sessions: sum(least(ended_n, 1)), hit: sum(least(error_y, 1)),
                missed: sum(least(ended_n - error_y, 1))},
            {metric: 'hidden_error_rate', share: true, n: sum(hidden_n), y: sum(hidden_y),
                yy: sum(hidden_y * hidden_y), yn: sum(hidden_y * hidden_n),
                nn: sum(hidden_n * hidden_n),
                sessions: sum(least(hidden_n, 1)), hit: sum(least(hidden_y, 1)),
                missed: sum(least(hidden_n - hidden_y, 1))},
            {metric: 'infrastructure_rate', share: true, n: sum(ended_n), y: sum(infrastructure_y),
                yy: sum(infrastructure_y * infrastructure_y), yn: sum(infrastructure_y * ended_n),
                nn: sum(ended_n * ended_n),
                sessions: sum(least(ended_n, 1)), hit: sum(least(infrastructure_y, 1)),
                missed: sum(least(ended_n - infrastructure_y, 1))},
            {metric: 'unanswered_rate', share: true, n: sum(ended_n), y: sum(unanswered_y),
                yy: sum(unanswered_y * unanswered_y), yn: sum(unanswered_y * ended_n),
                nn: sum(ended_n * ended_n),
                sessions: sum(least(ended_n, 1)), hit: sum(least(unanswered_y, 1)),
                missed: sum(least(ended_n - unanswered_y, 1))},
            {metric: 'invalid_input_rate', share: true, n: sum(input_n), y: sum(input_y),
                yy: sum(input_y * input_y), yn: sum(input_y * input_n),
                nn: sum(input_n * input_n),
                sessions: sum(least(input_n, 1)), hit: sum(least(input_y, 1)),
                missed: sum(least(input_n - input_y, 1))},
            {metric: 'invalid_output_rate', share: true, n: sum(output_n), y: sum(output_y),
                yy: sum(output_y * output_y), yn: sum(output_y * output_n),
                nn: sum(output_n * output_n),
                sessions: sum(least(output_n, 1)), hit: sum(least(output_y, 1)),
                missed: sum(least(output_n - output_y, 1))},
            {metric: 'retry_rate', share: true, n: sum(retry_n), y: sum(retry_y),
                yy: sum(retry_y * retry_y), yn: sum(retry_y * retry_n),
                nn: sum(retry_n * retry_n),
                sessions: sum(least(retry_n, 1)), hit: sum(least(retry_y, 1)),
                missed: sum(least(retry_n - retry_y, 1))},
            {metric: 'ln_latency_ms', share: false, n: sum(latency_n), y: sum(latency_y),
                yy: sum(latency_y * latency_y), yn: sum(latency_y * latency_n),
                nn: sum(latency_n * latency_n),
                sessions: sum(least(latency_n, 1)), hit: NULL, missed: NULL},
            {metric: 'ln_response_bytes', share: false, n: sum(bytes_n), y: sum(bytes_y),
                yy: sum(bytes_y * bytes_y), yn: sum(bytes_y * bytes_n),
                nn: sum(bytes_n * bytes_n),
                sessions: sum(least(bytes_n, 1)), hit: NULL, missed: NULL},
            {metric: 'inspector_overall_confidence', share: false, n: sum(inspector_n), y: sum(inspector_y),
                yy: sum(inspector_y * inspector_y), yn: sum(inspector_y * inspector_n),
                nn: sum(inspector_n * inspector_n),
                sessions: sum(least(inspector_n, 1)), hit: NULL, missed: NULL},
            {metric: 'seed_overall_confidence', share: false, n: sum(seed_n), y: sum(seed_y),
                yy: sum(seed_y * seed_y), yn: sum(seed_y * seed_n),
                nn: sum(seed_n * seed_n),
                sessions: sum(least(seed_n, 1)), hit: NULL, missed: NULL}
        ], recursive := true)
    FROM _visits(per)
    GROUP BY kind
),
totals AS (
    SELECT
        * REPLACE (sessions::BIGINT AS sessions, hit::BIGINT AS hit, missed::BIGINT AS missed)
    FROM moments
    WHERE n > 0
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
        CASE WHEN NOT share AND sessions > 1 THEN sessions - 1 END AS df,
        if(share, cluster_t(n, nn, n_eff, sessions, least(hit, missed)), t_quantile(0.975, df))
            AS t
    FROM effective
)
SELECT
    level, server, tool, metric, share, n, y, sessions, hit, missed,
    mean, variance, n_eff, df, t, yy, yn, nn,
    if(share, wilson_low(mean, n_eff, t), mean - t * sqrt(variance)) AS low,
    if(share, wilson_high(mean, n_eff, t), mean + t * sqrt(variance)) AS high
FROM critical
