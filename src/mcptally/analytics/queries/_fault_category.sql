-- The category of a call in the taxonomy of arXiv 2606.05339; null for a call without a fault.
-- Value of: method, outcome, verdict, reason, inputs, outputs
-- The taxonomy covers faults of running servers, not refused requests, outages or killed processes.
-- docs/explanation/public-servers.md explains the choice.
CASE
    WHEN outcome = 'ok' OR _unfinished(outcome) AND outcome <> 'cancelled' THEN CASE
        WHEN outputs IN ('invalid', 'missing_output') THEN 'Data & Schema'
        WHEN inputs = 'invalid' AND outcome = 'ok' THEN 'Tool'
    END
    WHEN outcome IN ('cancelled', 'unknown') THEN NULL
    WHEN outcome = 'hidden_error' THEN 'Tool'
    WHEN outcome = 'timeout' OR reason = 'timeout_or_cancel' THEN 'Timeout & Cancellation'
    WHEN _is_business(verdict) THEN 'outside: request refused'
    WHEN reason = 'connection_closed' THEN 'Transport Layer'
    WHEN _is_infrastructure(verdict) THEN 'outside: infrastructure'
    WHEN _is_ambiguous(verdict) THEN 'outside: cause unknown'
    WHEN reason = 'output_contract' THEN 'Data & Schema'
    WHEN reason = 'misconfig_or_missing_dependency' THEN 'State & Configuration'
    WHEN method IN ('initialize', 'server/discover') THEN 'Session Lifecycle'
    WHEN method LIKE 'resources/%' THEN 'Resource'
    WHEN method LIKE 'prompts/%' THEN 'Prompt'
    WHEN method = 'tools/call' THEN 'Tool'
    ELSE 'Base Protocol'
END
