-- Number of observations `n` and their sum `y`, per session, tool or server (`level`), and metric.
-- Rates count calls. Metrics `ln_…` sum natural logarithms, whose mean describes a typical call.
WITH sessions AS (
    SELECT
        level, server, tool, session,
        unnest([
            {metric: 'success_rate', n: ended_n, y: success_y},
            {metric: 'confidence', n: shown_n, y: success_y},
            {metric: 'failure_rate', n: call_n, y: failure_y},
            {metric: 'refusal_rate', n: call_n, y: refusal_y},
            {metric: 'infrastructure_rate', n: call_n, y: infrastructure_y},
            {metric: 'ambiguous_rate', n: call_n, y: ambiguous_y},
            {metric: 'hidden_error_rate', n: call_n, y: hidden_y},
            {metric: 'unanswered_rate', n: ended_n, y: unanswered_y},
            {metric: 'invalid_input_rate', n: input_n, y: input_y},
            {metric: 'invalid_output_rate', n: output_n, y: output_y},
            {metric: 'retry_rate', n: call_n, y: retry_y},
            {metric: 'ln_latency_ms', n: latency_n, y: latency_y},
            {metric: 'ln_response_bytes', n: bytes_n, y: bytes_y}
        ], recursive := true)
    FROM (FROM _session_counts('tool') UNION ALL FROM _session_counts('server'))
)
SELECT * FROM sessions WHERE n > 0
