-- Rates, intervals, latencies and costs of every tool or every server.
-- Of: per
WITH used AS NOT MATERIALIZED (
    SELECT *, if(per = 'tool', u.tool, NULL) AS named, hash(session) AS session_hash,
        hash(hash(server), if(per = 'tool', hash(u.tool), 0)) AS tool_hash
    FROM usage u
),
times AS MATERIALIZED (
    SELECT
        any_value(server) AS server, any_value(named) AS tool,
        latency_quantiles(list(latencies_ms), list(session_hash)) AS q
    FROM used
    WHERE latencies_ms IS NOT NULL
    GROUP BY tool_hash
),
rated AS MATERIALIZED (SELECT * FROM _rates_per(per)),
rates AS (
    SELECT
        level, server, tool,
        any_value(m) FILTER (metric = 'success_rate') AS success,
        any_value(m) FILTER (metric = 'confidence') AS shown,
        any_value(m) FILTER (metric = '_confidence_floor') AS possibly_shown,
        any_value(m) FILTER (metric = 'failure_rate') AS failure,
        any_value(m) FILTER (metric = 'refusal_rate') AS refusal,
        any_value(m) FILTER (metric = 'infrastructure_rate') AS infrastructure,
        any_value(m) FILTER (metric = 'ambiguous_rate') AS ambiguous,
        any_value(m) FILTER (metric = 'hidden_error_rate') AS hidden,
        any_value(m) FILTER (metric = 'unanswered_rate') AS unanswered,
        any_value(m) FILTER (metric = 'invalid_input_rate') AS input,
        any_value(m) FILTER (metric = 'invalid_output_rate') AS output,
        any_value(m) FILTER (metric = 'retry_rate') AS retry
    FROM (
        SELECT level, server, tool, metric,
            {mean: mean, low: low, high: high, n: n, n_eff: n_eff, hit: hit,
                sessions: sessions} AS m
        FROM rated
    )
    GROUP BY ALL
),
-- Empirical Bayes: the prior comes from this server's tools if it has five or more, or from all.
likes AS (
    SELECT
        level, if(grouping(server) = 0, server, NULL) AS server, grouping(server) = 1 AS every,
        count(*) AS t, sum(n_eff) AS w, sum(n_eff ** 2) AS ww,
        sum(n_eff * mean) AS k, sum(n_eff * mean ** 2) AS kk
    FROM rated
    WHERE metric = 'confidence' AND n_eff >= 5
    GROUP BY GROUPING SETS ((level, server), (level))
    HAVING t >= 5
),
priors AS (
    SELECT
        level, server, every,
        (k + 0.5) / (w + 1) AS mu,
        -- Kleinman's method of moments: the share of the variance between tools.
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
        r.shown.mean * r.shown.n_eff + typical * m AS a,
        (1 - r.shown.mean) * r.shown.n_eff + (1 - typical) * m AS b
    FROM rates r
    LEFT JOIN priors own
        ON own.server IS NOT DISTINCT FROM r.server AND NOT own.every AND per = 'tool'
    LEFT JOIN priors every ON every.every
),
tallies AS MATERIALIZED (
    SELECT
        any_value(server) AS server, any_value(named) AS tool,
        sum(calls)::BIGINT AS calls,
        min(first_call) AS first_call,
        max(last_call) AS last_call,
        sum(
            ok + hidden_errors + tool_errors + protocol_errors + input_required + tasks + unknown
        )::BIGINT AS answered,
        sum(ok)::BIGINT AS ok,
        sum(hidden_errors)::BIGINT AS hidden_errors,
        sum(tool_errors)::BIGINT AS tool_errors,
        sum(protocol_errors)::BIGINT AS protocol_errors,
        sum(timeouts)::BIGINT AS timeouts,
        sum(no_responses)::BIGINT AS no_responses,
        sum(cancelled)::BIGINT AS cancelled,
        sum(input_required)::BIGINT AS input_required,
        sum(tasks)::BIGINT AS tasks,
        sum(unknown)::BIGINT AS unknown,
        sum(business)::BIGINT AS business,
        sum(tool_failures)::BIGINT AS tool_failures,
        sum(infrastructure)::BIGINT AS infrastructure,
        sum(ambiguous)::BIGINT AS ambiguous,
        sum(retries)::BIGINT AS retries,
        sum(retry_ms) / 1000 AS retry_seconds,
        sum(retry_tokens)::BIGINT AS retry_tokens,
        sum(retried_calls)::BIGINT AS retried_calls,
        sum(recovered_calls)::BIGINT AS recovered_calls
    FROM used
    GROUP BY tool_hash
),
tokens AS (
    SELECT
        any_value(server) AS server, any_value(named) AS tool,
        avg(n) AS response_tokens_mean,
        quantile_cont(n, 0.95) AS response_tokens_p95,
        sum(n)::BIGINT AS response_tokens_total
    FROM (SELECT server, named, tool_hash, unnest(response_tokens) AS n FROM used)
    GROUP BY tool_hash
),
several AS (
    SELECT server, count(*) AS tools
    FROM (
        SELECT any_value(server) AS server, any_value(u.tool) AS name
        FROM usage u
        WHERE per = 'server'
        GROUP BY hash(hash(server), hash(u.tool))
    ) c
    ANTI JOIN _unlisted_names n ON n.server IS NOT DISTINCT FROM c.server AND n.tool = c.name
    GROUP BY server
),
definitions AS (
    SELECT
        server, if(per = 'tool', l.tool, NULL) AS tool,
        count(*) AS listed, sum(bytes)::BIGINT AS bytes, sum(tokens)::BIGINT AS tokens
    FROM (
        SELECT server, tool, arg_max(bytes, (last_seen, definition)) AS bytes,
            arg_max(tokens, (last_seen, definition)) AS tokens
        FROM tools
        GROUP BY ALL
    ) l
    GROUP BY ALL
)
SELECT
    per AS level, a.server, a.tool, tools, coalesce(d.listed, 0) AS tools_listed,
    calls, ok,
    success.mean AS success_rate, success.low AS success_rate_low, success.high AS success_rate_high,
    _insufficient_data(success) AS success_rate_insufficient_data,
    100 * shown.mean AS confidence,
    -- Ambiguous failures widen the interval: the low end counts all as the tool's, the high end none.
    if(shown.mean IS NULL, NULL, 100 * least(shown.low, possibly_shown.low)) AS confidence_low,
    100 * shown.high AS confidence_high,
    _insufficient_data({n_eff: shown.n_eff, low: confidence_low / 100, high: shown.high})
        AS confidence_insufficient_data,
    shown.n_eff AS confidence_n_eff,
    failure.mean AS failure_rate, failure.low AS failure_rate_low,
    failure.high AS failure_rate_high,
    _insufficient_data(failure) AS failure_rate_insufficient_data,
    refusal.mean AS refusal_rate, refusal.low AS refusal_rate_low,
    refusal.high AS refusal_rate_high,
    _insufficient_data(refusal) AS refusal_rate_insufficient_data,
    r.infrastructure.mean AS infrastructure_rate, r.infrastructure.low AS infrastructure_rate_low,
    r.infrastructure.high AS infrastructure_rate_high,
    _insufficient_data(r.infrastructure) AS infrastructure_rate_insufficient_data,
    r.ambiguous.mean AS ambiguous_rate, r.ambiguous.low AS ambiguous_rate_low,
    r.ambiguous.high AS ambiguous_rate_high,
    _insufficient_data(r.ambiguous) AS ambiguous_rate_insufficient_data,
    hidden.mean AS hidden_error_rate, hidden.low AS hidden_error_rate_low,
    hidden.high AS hidden_error_rate_high,
    _insufficient_data(hidden) AS hidden_error_rate_insufficient_data,
    tool_failures, a.infrastructure, a.ambiguous, business, hidden_errors, tool_errors,
    protocol_errors, timeouts, no_responses, timeouts + no_responses AS unanswered, cancelled,
    input_required, tasks, unknown, answered, retry.sessions AS sessions,
    coalesce(failure.hit, 0) AS sessions_with_failure, first_call, last_call,
    100 * s.a / (s.a + s.b) AS confidence_shrunk,
    100 * beta_quantile(0.025, s.a, s.b) AS confidence_shrunk_low,
    100 * beta_quantile(0.975, s.a, s.b) AS confidence_shrunk_high,
    unanswered.mean AS unanswered_rate, unanswered.low AS unanswered_rate_low,
    unanswered.high AS unanswered_rate_high,
    _insufficient_data(unanswered) AS unanswered_rate_insufficient_data,
    input.mean AS invalid_input_rate, input.low AS invalid_input_rate_low,
    input.high AS invalid_input_rate_high,
    _insufficient_data(input) AS invalid_input_rate_insufficient_data,
    output.mean AS invalid_output_rate, output.low AS invalid_output_rate_low,
    output.high AS invalid_output_rate_high,
    _insufficient_data(output) AS invalid_output_rate_insufficient_data,
    t.q,
    q[1] AS latency_p50_ms, q[2] AS latency_p50_ms_low, q[3] AS latency_p50_ms_high,
    q[4] AS latency_p95_ms, q[5] AS latency_p95_ms_low, q[6] AS latency_p95_ms_high,
    q[7] AS latency_p99_ms, q[8] AS latency_p99_ms_low, q[9] AS latency_p99_ms_high,
    retries, retry.mean AS retry_rate, retry.low AS retry_rate_low, retry.high AS retry_rate_high,
    _insufficient_data(retry) AS retry_rate_insufficient_data,
    retried_calls, recovered_calls, retry_seconds, retry_tokens,
    d.bytes AS definition_bytes, d.tokens AS definition_tokens,
    response_tokens_mean, response_tokens_p95, response_tokens_total
FROM tallies a
LEFT JOIN rates r
    ON r.server IS NOT DISTINCT FROM a.server
    AND r.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN shrunk s
    ON s.server IS NOT DISTINCT FROM a.server
    AND s.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN several n ON n.server IS NOT DISTINCT FROM a.server
LEFT JOIN times t
    ON t.server IS NOT DISTINCT FROM a.server
    AND t.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN tokens k
    ON k.server IS NOT DISTINCT FROM a.server
    AND k.tool IS NOT DISTINCT FROM a.tool
LEFT JOIN definitions d
    ON d.server IS NOT DISTINCT FROM a.server
    AND d.tool IS NOT DISTINCT FROM a.tool
