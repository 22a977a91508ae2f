-- Calls of tools, and what each counts towards. Calls that name no tool are nobody's.
SELECT
    recording, server, tool, session, call_id, attempt_of, attempt_why, requested_at,
    date_trunc('hour', requested_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS hour,
    outcome, verdict,
    latency_ms, request_bytes, response_bytes, response_tokens,
    outcome IN ('ok', 'hidden_error', 'tool_error', 'protocol_error', 'timeout', 'no_response')
        AS ended,
    -- Not the tool's doing, or nobody can say: apart from the failure rate, not in it.
    ended AND coalesce(verdict, '') NOT IN ('infrastructure', 'ambiguous') AS judged,
    judged AND coalesce(verdict = 'tool_failure', false) AS failed,
    judged AND coalesce(verdict IN ('tool_failure', 'business'), false) AS judged_error,
    outcome IN ('ok', 'hidden_error') AS claims_success,
    coalesce(input_schema_state IN ('valid', 'invalid'), false) AS input_checked,
    coalesce(output_schema_state IN ('valid', 'invalid', 'missing_output'), false)
        AS output_checked,
    input_schema_state, output_schema_state,
    inspector_confidence * CASE inspector_classification WHEN 'fully_working' THEN 1.0
        WHEN 'partially_working' THEN 0.7 WHEN 'connectivity_only' THEN 0.3
        WHEN 'error' THEN 0.2 WHEN 'broken' THEN 0.0 END AS inspector_points,
    seed_confidence * CASE seed_classification WHEN 'fully_working' THEN 1.0
        WHEN 'partially_working' THEN 0.7 WHEN 'connectivity_only' THEN 0.3
        WHEN 'error' THEN 0.2 WHEN 'broken' THEN 0.0 END AS seed_points
FROM calls
WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
