-- What the calls of tools add up to, per session, tool and hour: the table `usage`, made of calls.
-- `score` keeps it in every store; where filters choose calls, it is made anew of those.
WITH repeated AS (
    -- A chain counts once, in the hour of its first repetition.
    SELECT
        arg_min(call_id, (requested_at, call_id)) AS first_retry,
        arg_min(call_id, (requested_at, call_id)) FILTER (outcome = 'ok') AS first_recovery
    FROM _judged
    WHERE attempt_why = 'retry'
    GROUP BY server, tool, attempt_of
),
counted AS (
    SELECT
        recording, session, server, tool, hour,
        count(*) AS calls, min(requested_at) AS first_call, max(requested_at) AS last_call,
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
        count(*) FILTER (judged) AS judged,
        count(*) FILTER (judged_error) AS judged_errors,
        count(*) FILTER (failed) AS failed,
        count(*) FILTER (ended AND verdict = 'infrastructure') AS ended_infrastructure,
        count(*) FILTER (input_checked) AS inputs_checked,
        count(*) FILTER (input_checked AND input_schema_state = 'invalid') AS inputs_invalid,
        count(*) FILTER (output_checked) AS outputs_checked,
        count(*) FILTER (output_checked AND output_schema_state <> 'valid') AS outputs_invalid,
        count(*) FILTER (attempt_why = 'retry') AS retries,
        count(*) FILTER (call_id IN (SELECT first_retry FROM repeated)) AS retried_calls,
        count(*) FILTER (call_id IN (SELECT first_recovery FROM repeated)) AS recovered_calls,
        coalesce(sum(latency_ms) FILTER (attempt_why = 'retry'), 0) AS retry_ms,
        coalesce(sum(coalesce(request_bytes, 0) // 4 + coalesce(response_tokens, 0))
            FILTER (attempt_why = 'retry'), 0)::BIGINT AS retry_tokens,
        list(latency_ms) FILTER (latency_ms IS NOT NULL) AS latencies_ms,
        coalesce(sum(ln(greatest(latency_ms, 0.001))) FILTER (latency_ms IS NOT NULL), 0)
            AS ln_latency_ms,
        list(response_tokens) FILTER (response_tokens IS NOT NULL) AS response_tokens,
        count(*) FILTER (response_bytes > 0) AS sized,
        coalesce(sum(ln(response_bytes)) FILTER (response_bytes > 0), 0) AS ln_response_bytes,
        count(inspector_points) AS inspector_judged,
        count(seed_points) AS seed_judged
    FROM _judged
    GROUP BY ALL
)
SELECT c.*, s.* EXCLUDE (recording, session, server, tool, hour)
FROM counted c
LEFT JOIN _seed_sums s
    ON s.recording IS NOT DISTINCT FROM c.recording AND s.session IS NOT DISTINCT FROM c.session
    AND s.server IS NOT DISTINCT FROM c.server AND s.tool = c.tool
    AND s.hour IS NOT DISTINCT FROM c.hour
