-- Faults by server and session, in the categories of `_fault_category`; and sessions without one.
SELECT
    server, hash(session) AS session_hash, hash(server) AS server_hash,
    _fault_category(method, outcome, verdict, reason, input_schema_state, output_schema_state)
        AS category,
    any_value(command) AS command, any_value(transport) AS transport,
    count(*) AS calls, min(call_id) AS call_id
FROM calls
WHERE dir = 'c2s' AND session IS NOT NULL
GROUP BY server, session_hash, category
UNION ALL
-- Server messages that are not replies to a call appear only in findings.
SELECT
    server, hash(session), hash(server),
    CASE
        WHEN rule = 'protocol.stdout_not_json' THEN 'Transport Layer'
        WHEN rule LIKE 'leak.%' THEN 'Security'
        ELSE 'Base Protocol'
    END AS category,
    NULL, NULL, 0, min(call_id)
FROM findings
WHERE session IS NOT NULL AND (
    rule LIKE 'leak.%' OR rule IN (
        'protocol.stdout_not_json', 'protocol.result_shape', 'protocol.result_type_missing',
        'protocol.result_without_id', 'protocol.progress_without_token', 'pairing.second_reply',
        'pairing.id_changed'
    )
)
GROUP BY server, hash(session), category
