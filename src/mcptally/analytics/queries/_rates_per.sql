-- Rates and means with intervals (sessions are clusters), per tool or per server, and metric.
-- Of: per
-- The moments of all metrics are summed in one row: a row per metric and session would be slow.
WITH moments AS (
    SELECT
        any_value(level) AS level, any_value(server) AS server, any_value(tool) AS tool,
        unnest([
            {metric: 'success_rate', share: true, of: _moments(ended_n, success_y)},
            {metric: 'confidence', share: true, of: _moments(shown_n, success_y)},
            -- As if every ambiguous failure were the tool's: the low end of `confidence`.
            {metric: '_confidence_floor', share: true, of: _moments(possibly_shown_n, success_y)},
            {metric: 'failure_rate', share: true, of: _moments(call_n, failure_y)},
            {metric: 'refusal_rate', share: true, of: _moments(call_n, refusal_y)},
            {metric: 'infrastructure_rate', share: true, of: _moments(call_n, infrastructure_y)},
            {metric: 'ambiguous_rate', share: true, of: _moments(call_n, ambiguous_y)},
            {metric: 'hidden_error_rate', share: true, of: _moments(call_n, hidden_y)},
            {metric: 'unanswered_rate', share: true, of: _moments(ended_n, unanswered_y)},
            {metric: 'invalid_input_rate', share: true, of: _moments(input_n, input_y)},
            {metric: 'invalid_output_rate', share: true, of: _moments(output_n, output_y)},
            {metric: 'retry_rate', share: true, of: _moments(call_n, retry_y)}
        ], recursive := true)
    FROM _session_counts(per)
    GROUP BY tool_hash
),
spread AS (
    SELECT
        * REPLACE (
            sessions::BIGINT AS sessions, if(share, hit, NULL)::BIGINT AS hit,
            if(share, missed, NULL)::BIGINT AS missed
        ),
        y / n AS mean,
        CASE WHEN sessions > 1 THEN
            sessions / (sessions - 1)
                * greatest(0, yy - 2 * y / n * yn + (y / n) ** 2 * nn) / n ** 2
        END AS variance,
        CASE WHEN share
            THEN rate_interval(n, y, nn, yy, yn, mixed, sessions, least(hit, missed)) END AS rate,
        CASE WHEN NOT share AND sessions > 1 THEN sessions - 1 END AS df
    FROM moments
    WHERE n > 0
)
SELECT
    level, server, tool, metric, share, n, y, sessions, hit, missed,
    mean, variance, rate.n_eff AS n_eff, df, if(share, rate.t, t_quantile(0.975, df)) AS t,
    yy, yn, nn, mixed,
    if(share, rate.low, mean - t * sqrt(variance)) AS low,
    if(share, rate.high, mean + t * sqrt(variance)) AS high
FROM spread
