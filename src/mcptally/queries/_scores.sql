-- What is known of every tool and every server (level): rates, intervals, costs.
WITH rated AS MATERIALIZED (SELECT * FROM _rates),
rates AS (
    SELECT
        level, server, tool,
        any_value(m) FILTER (metric = 'failure_rate') AS failure,
        any_value(m) FILTER (metric = 'error_rate') AS error,
        any_value(m) FILTER (metric = 'hidden_error_rate') AS hidden,
        any_value(m) FILTER (metric = 'infrastructure_rate') AS infrastructure,
        any_value(m) FILTER (metric = 'unanswered_rate') AS unanswered,
        any_value(m) FILTER (metric = 'invalid_input_rate') AS input,
        any_value(m) FILTER (metric = 'invalid_output_rate') AS output,
        any_value(m) FILTER (metric = 'retry_rate') AS retry,
        any_value(m) FILTER (metric = 'inspector_overall_confidence') AS inspector,
        any_value(m) FILTER (metric = 'seed_overall_confidence') AS seed
    FROM (
        SELECT level, server, tool, metric,
            {mean: mean, low: low, high: high, n: n, n_eff: n_eff, hit: hit} AS m
        FROM rated
    )
    GROUP BY ALL
),
-- Empirical Bayes: what tools of this server (of five or more) or of all servers are like.
likes AS (
    SELECT
        level, if(grouping(server) = 0, server, NULL) AS server, grouping(server) = 1 AS every,
        count(*) AS t, sum(n_eff) AS w, sum(n_eff ** 2) AS ww,
        sum(n_eff * mean) AS k, sum(n_eff * mean ** 2) AS kk
    FROM rated
    WHERE metric = 'failure_rate' AND n_eff >= 5
    GROUP BY GROUPING SETS ((level, server), (level))
    HAVING t >= 5
),
priors AS (
    SELECT
        level, server, every,
        (k + 0.5) / (w + 1) AS mu,
        -- Kleinman's moments: the share of the spread that lies between tools.
        CASE WHEN 0 < k AND k < w THEN
            least(0.9, greatest(0.01,
                ((kk - k ** 2 / w) / (k / w * (1 - k / w)) - (t - 1)) / (w - ww / w - (t - 1))))
        ELSE 0.5 END AS rho
    FROM likes
),
shrunk AS (
    SELECT
        r.level, r.server, r.tool,
        coalesce(own.mu, every.mu, 0.5) AS typical,
        1 / coalesce(own.rho, every.rho, 0.5) - 1 AS m,
        r.failure.mean * r.failure.n_eff + typical * m AS a,
        (1 - r.failure.mean) * r.failure.n_eff + (1 - typical) * m AS b
    FROM rates r
    LEFT JOIN priors own
        ON own.level = r.level AND own.server IS NOT DISTINCT FROM r.server
        AND NOT own.every AND r.level = 'tool'
    LEFT JOIN priors every ON every.level = r.level AND every.every
),
-- Rogan-Gladen: the verdict misses some failures and finds some that are none.
corrections AS (
    SELECT
        r.level, r.server, r.tool, errors.mean AS errors, r.failure.mean AS p,
        (called_failures + 1) / (labelled_failures + 2) AS sens,
        (called_others + 1) / (labelled_others + 2) AS spec,
        sens + spec - 1 AS j,
        least(1, greatest(0, (p - (1 - spec) * errors.mean) / j)) AS rate,
        sqrt(rate ** 2 * sens * (1 - sens) / (labelled_failures + 3)
            + (errors.mean - rate) ** 2 * spec * (1 - spec) / (labelled_others + 3)) / j AS doubt,
        sqrt(((p - r.failure.low) / j) ** 2 + doubt ** 2) AS down,
        sqrt(((r.failure.high - p) / j) ** 2 + doubt ** 2) AS up
    FROM rates r
    JOIN (
        SELECT if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool,
            count(*) FILTER (judged_error) / nullif(count(*) FILTER (judged), 0) AS mean
        FROM _judged
        GROUP BY GROUPING SETS ((server, tool), (server))
    ) errors
        ON errors.level = r.level AND errors.server IS NOT DISTINCT FROM r.server
        AND errors.tool IS NOT DISTINCT FROM r.tool
    CROSS JOIN _measured
),
tallies AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool,
        count(*) AS calls,
        count(DISTINCT tool) AS tools,
        count(DISTINCT session) AS sessions,
        min(requested_at) AS first_call,
        max(requested_at) AS last_call,
        count(*) FILTER (outcome IN ('ok', 'hidden_error', 'tool_error', 'protocol_error',
            'input_required', 'task')) AS answered,
        count(*) FILTER (outcome = 'ok') AS ok,
        count(*) FILTER (outcome = 'hidden_error') AS hidden_errors,
        count(*) FILTER (outcome = 'tool_error') AS tool_errors,
        count(*) FILTER (outcome = 'protocol_error') AS protocol_errors,
        count(*) FILTER (outcome = 'timeout') AS timeouts,
        count(*) FILTER (outcome = 'no_response') AS no_responses,
        count(*) FILTER (outcome = 'cancelled') AS cancelled,
        count(*) FILTER (outcome = 'input_required') AS input_required,
        count(*) FILTER (outcome = 'task') AS tasks,
        count(*) FILTER (verdict = 'business') AS business,
        count(*) FILTER (verdict = 'tool_failure') AS tool_failures,
        count(*) FILTER (verdict = 'infrastructure') AS infrastructure,
        count(*) FILTER (verdict = 'ambiguous') AS ambiguous,
        quantile_cont(latency_ms, [0.5, 0.95, 0.99]) AS latency,
        count(*) FILTER (attempt_why = 'retry') AS retries,
        coalesce(sum(latency_ms) FILTER (attempt_why = 'retry'), 0) / 1000 AS retry_seconds,
        coalesce(sum(coalesce(request_bytes, 0) // 4 + coalesce(response_tokens, 0))
            FILTER (attempt_why = 'retry'), 0)::BIGINT AS retry_tokens,
        count(DISTINCT attempt_of) FILTER (attempt_why = 'retry') AS retried_calls,
        count(DISTINCT attempt_of) FILTER (attempt_why = 'retry' AND outcome = 'ok')
            AS recovered_calls,
        avg(response_tokens) AS response_tokens_mean,
        quantile_cont(response_tokens, 0.95) AS response_tokens_p95,
        coalesce(sum(response_tokens), 0)::BIGINT AS response_tokens_total
    FROM _judged
    GROUP BY GROUPING SETS ((server, tool), (server))
),
-- Latencies in bins 2 % wide, sessions in at most 200 groups: what a bootstrap costs is bounded.
bins AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool,
        hash(session) % 200 AS cluster,
        floor(50 * ln(greatest(latency_ms, 0.001)))::INTEGER AS bin,
        count(*) AS n
    FROM _judged
    WHERE latency_ms IS NOT NULL
    GROUP BY GROUPING SETS ((server, tool, cluster, bin), (server, cluster, bin))
),
bootstrap AS (
    SELECT
        b.level, b.server, b.tool,
        bootstrap_quantiles(list(cluster::INTEGER ORDER BY cluster, bin),
            list(bin ORDER BY cluster, bin), list(b.n ORDER BY cluster, bin)) AS q
    FROM bins b
    JOIN rated r
        ON r.level = b.level AND r.server IS NOT DISTINCT FROM b.server
        AND r.tool IS NOT DISTINCT FROM b.tool
        AND r.metric = 'ln_latency_ms' AND r.sessions >= 30
    GROUP BY ALL
),
definitions AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool,
        count(*) AS listed, sum(bytes)::BIGINT AS bytes, sum(tokens)::BIGINT AS tokens
    FROM (
        SELECT server, tool, arg_max(bytes, (last_seen, definition)) AS bytes,
            arg_max(tokens, (last_seen, definition)) AS tokens
        FROM tools
        GROUP BY ALL
    )
    GROUP BY GROUPING SETS ((server, tool), (server))
)
SELECT
    a.level, a.server, a.tool, tools, coalesce(d.listed, 0) AS tools_listed,
    calls, answered, sessions, first_call, last_call,
    100 * (1 - failure.mean) AS confidence,
    100 * (1 - failure.high) AS confidence_low,
    100 * (1 - failure.low) AS confidence_high,
    coalesce(failure.n_eff < 10 OR failure.high - failure.low > 0.4, true) AS insufficient_data,
    failure.mean AS failure_rate, failure.low AS failure_rate_low,
    failure.high AS failure_rate_high,
    coalesce(failure.n, 0)::BIGINT AS judged_calls, failure.n_eff AS n_eff,
    coalesce(failure.hit, 0) AS sessions_with_failure,
    s.a / (s.a + s.b) AS failure_rate_shrunk,
    beta_quantile(0.025, s.a, s.b) AS failure_rate_shrunk_low,
    beta_quantile(0.975, s.a, s.b) AS failure_rate_shrunk_high,
    c.rate AS failure_rate_corrected,
    greatest(0, c.rate - c.down) AS failure_rate_corrected_low,
    least(1, c.rate + c.up) AS failure_rate_corrected_high,
    error.mean AS error_rate, error.low AS error_rate_low, error.high AS error_rate_high,
    hidden.mean AS hidden_error_rate, hidden.low AS hidden_error_rate_low,
    hidden.high AS hidden_error_rate_high,
    r.infrastructure.mean AS infrastructure_rate,
    r.infrastructure.low AS infrastructure_rate_low,
    r.infrastructure.high AS infrastructure_rate_high,
    unanswered.mean AS unanswered_rate, unanswered.low AS unanswered_rate_low,
    unanswered.high AS unanswered_rate_high,
    input.mean AS invalid_input_rate, input.low AS invalid_input_rate_low,
    input.high AS invalid_input_rate_high,
    output.mean AS invalid_output_rate, output.low AS invalid_output_rate_low,
    output.high AS invalid_output_rate_high,
    ok, hidden_errors, tool_errors, protocol_errors, timeouts, no_responses,
    timeouts + no_responses AS unanswered, cancelled, input_required, tasks,
    business, tool_failures, a.infrastructure, ambiguous,
    latency[1] AS latency_p50_ms, q[1] AS latency_p50_ms_low, q[2] AS latency_p50_ms_high,
    latency[2] AS latency_p95_ms, q[3] AS latency_p95_ms_low, q[4] AS latency_p95_ms_high,
    latency[3] AS latency_p99_ms, q[5] AS latency_p99_ms_low, q[6] AS latency_p99_ms_high,
    retries, retry.mean AS retry_rate, retry.low AS retry_rate_low, retry.high AS retry_rate_high,
    retried_calls, recovered_calls, retry_seconds, retry_tokens,
    d.bytes AS definition_bytes, d.tokens AS definition_tokens,
    response_tokens_mean, response_tokens_p95, response_tokens_total,
    greatest(0, r.seed.low) AS seed_points_low, least(100, r.seed.high) AS seed_points_high,
    greatest(0, r.inspector.low) AS inspector_points_low,
    least(100, r.inspector.high) AS inspector_points_high
FROM tallies a
LEFT JOIN rates r
    ON r.level = a.level AND r.server IS NOT DISTINCT FROM a.server
    AND r.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN shrunk s
    ON s.level = a.level AND s.server IS NOT DISTINCT FROM a.server
    AND s.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN corrections c
    ON c.level = a.level AND c.server IS NOT DISTINCT FROM a.server
    AND c.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN bootstrap b
    ON b.level = a.level AND b.server IS NOT DISTINCT FROM a.server
    AND b.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN definitions d
    ON d.level = a.level AND d.server IS NOT DISTINCT FROM a.server
    AND d.tool IS NOT DISTINCT FROM a.tool
