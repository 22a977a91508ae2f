-- What the calls of a session add up to, per tool or server: of `…_n` calls, `…_y`.
-- Of: per
SELECT
    per AS level, server, if(per = 'tool', u.tool, NULL) AS tool, session,
    sum(calls)::DOUBLE AS retry_n, sum(retries)::DOUBLE AS retry_y,
    sum(judged)::DOUBLE AS failure_n, sum(failed)::DOUBLE AS failure_y,
    sum(ok + hidden_errors + tool_errors + protocol_errors + timeouts + no_responses)::DOUBLE
        AS ended_n,
    ended_n - sum(ok) AS error_y,
    sum(ended_infrastructure)::DOUBLE AS infrastructure_y,
    sum(timeouts + no_responses)::DOUBLE AS unanswered_y,
    sum(ok + hidden_errors)::DOUBLE AS hidden_n, sum(hidden_errors)::DOUBLE AS hidden_y,
    sum(inputs_checked)::DOUBLE AS input_n, sum(inputs_invalid)::DOUBLE AS input_y,
    sum(outputs_checked)::DOUBLE AS output_n, sum(outputs_invalid)::DOUBLE AS output_y,
    sum(coalesce(len(latencies_ms), 0))::DOUBLE AS latency_n, sum(ln_latency_ms) AS latency_y,
    sum(sized)::DOUBLE AS bytes_n, sum(ln_response_bytes) AS bytes_y,
    sum(inspector_judged)::DOUBLE AS inspector_n, sum(inspector_weighed) AS inspector_y,
    sum(seed_judged)::DOUBLE AS seed_n, sum(seed_weighed) AS seed_y
FROM usage u
GROUP BY ALL
