-- Rates with intervals (clustered by session), per metric and tool or server.
-- Of: per
-- The moments of all metrics are summed in one row: a row per metric and session would be slower.
WITH moments AS (
    SELECT
        any_value(level) AS level, any_value(server) AS server, any_value(tool) AS tool,
        unnest([
            {metric: 'success_rate', of: _moments(ended_n, success_y)},
            {metric: 'confidence', of: _moments(shown_n, success_y)},
            -- Counts every ambiguous failure as the tool's, for the low end of `confidence`.
            {metric: '_confidence_floor', of: _moments(possibly_shown_n, success_y)},
            {metric: 'failure_rate', of: _moments(call_n, failure_y)},
            {metric: 'refusal_rate', of: _moments(call_n, refusal_y)},
            {metric: 'infrastructure_rate', of: _moments(call_n, infrastructure_y)},
            {metric: 'ambiguous_rate', of: _moments(call_n, ambiguous_y)},
            {metric: 'hidden_error_rate', of: _moments(call_n, hidden_y)},
            {metric: 'unanswered_rate', of: _moments(ended_n, unanswered_y)},
            {metric: 'invalid_input_rate', of: _moments(input_n, input_y)},
            {metric: 'invalid_output_rate', of: _moments(output_n, output_y)},
            {metric: 'retry_rate', of: _moments(call_n, retry_y)}
        ], recursive := true)
    FROM _session_counts(per)
    GROUP BY tool_hash
),
-- The correlation of calls within a session, estimated from all tools (or servers) together, and
-- the number of sessions used. Sums of whole numbers do not depend on order.
pooled AS (
    SELECT
        metric,
        1 - sum(round(1e6 * mixed))
            / nullif(sum(round(1e6 * (n - sessions) * y / n * (1 - y / n))), 0) AS alike,
        sum(least(hit, missed, sessions - 1)) AS known
    FROM moments
    WHERE n > 0
    GROUP BY metric
),
spread AS (
    SELECT
        * EXCLUDE (alike, known) REPLACE (
            sessions::BIGINT AS sessions, hit::BIGINT AS hit, missed::BIGINT AS missed
        ),
        y / n AS mean,
        CASE WHEN sessions > 1 THEN
            sessions / (sessions - 1)
                * greatest(0, yy - 2 * y / n * yn + (y / n) ** 2 * nn) / n ** 2
        END AS variance,
        rate_interval(n, y, nn, yy, yn, mixed, sessions, least(hit, missed), alike, known)
            AS rate
    FROM moments
    JOIN pooled USING (metric)
    WHERE n > 0
)
SELECT
    level, server, tool, metric, n, y, sessions, hit, missed,
    mean, variance, rate.n_eff AS n_eff, rate.t AS t, yy, yn, nn, mixed,
    rate.low AS low, rate.high AS high
FROM spread
