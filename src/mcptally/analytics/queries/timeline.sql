-- How many calls to each tool and server succeeded and failed over time, by cause?
-- Shows: level, server, tool, start, calls, ok, tool_failures, infrastructure, ambiguous, business, success_rate, insufficient_data
-- None: No call to a tool was recorded.
-- A row is a period, from a minute to a week: the shortest that divides the time of all calls into
-- at most 60 periods. Calls whose time is unknown are in a row without `start`.
WITH timed AS MATERIALIZED (
    SELECT
        server, tool, hash(server) AS server_hash, hash(hash(server), hash(tool)) AS tool_hash,
        hash(session) AS session_hash, requested_at AT TIME ZONE 'UTC' AS moment,
        outcome, verdict, ended
    FROM _tool_calls
),
chosen AS (
    SELECT _period_length(min(moment), max(moment)) AS length FROM timed
),
of_tools AS MATERIALIZED (
    SELECT
        server_hash, tool_hash, session_hash, time_bucket(length, moment) AS start,
        any_value(server) AS server, any_value(tool) AS tool, any_value(length) AS length,
        count(*) AS calls,
        count(*) FILTER (outcome = 'ok') AS ok,
        count(*) FILTER (_is_tool_failure(verdict)) AS tool_failures,
        count(*) FILTER (_is_infrastructure(verdict)) AS infrastructure,
        count(*) FILTER (_is_ambiguous(verdict)) AS ambiguous,
        count(*) FILTER (_is_business(verdict)) AS business,
        count(*) FILTER (outcome = 'cancelled') AS cancelled,
        count(*) FILTER (ended)::DOUBLE AS n
    FROM timed, chosen
    GROUP BY server_hash, tool_hash, session_hash, start
),
of_sessions AS (
    SELECT 'tool' AS level, tool_hash AS series, * EXCLUDE (server_hash, tool_hash)
    FROM of_tools
    UNION ALL
    SELECT
        'server', server_hash, session_hash, start, any_value(server), NULL, any_value(length),
        sum(calls), sum(ok), sum(tool_failures), sum(infrastructure), sum(ambiguous),
        sum(business), sum(cancelled), sum(n)
    FROM of_tools
    GROUP BY server_hash, session_hash, start
),
periods AS (
    SELECT
        level, any_value(server) AS server, any_value(tool) AS tool, start,
        any_value(length) AS length, count(*) AS sessions,
        sum(calls)::BIGINT AS calls, sum(ok)::BIGINT AS ok,
        sum(tool_failures)::BIGINT AS tool_failures,
        sum(infrastructure)::BIGINT AS infrastructure, sum(ambiguous)::BIGINT AS ambiguous,
        sum(business)::BIGINT AS business, sum(cancelled)::BIGINT AS cancelled,
        sum(n) AS ended,
        _interval(_moments(n, s.ok)) AS rate
    FROM of_sessions s
    GROUP BY level, series, start
)
SELECT
    level, server, tool, start AT TIME ZONE 'UTC' AS start,
    epoch(length)::BIGINT AS seconds,
    calls, ok, tool_failures, infrastructure, ambiguous, business, cancelled, sessions,
    ok / nullif(ended, 0) AS success_rate, rate.low AS success_rate_low,
    rate.high AS success_rate_high,
    _insufficient_data(rate) AS insufficient_data
FROM periods
ORDER BY level, server, tool, start
