-- Which failed calls does each problem of `priorities` concern?
-- Shows: cause, kind, server, tool, fault, certainty, template, requested_at, call_id
-- None: No call to a tool failed.
-- Failures of a server with the same cause form one problem, regardless of the tool: one for each
-- of the most frequent messages of a tool's own failures, and one for each other fault. Calls with
-- the same message are judged as a group: its fault is that of most of its calls, and null if that
-- is less than 70 % certain. It is `uncertain` if one or two texts decide about three calls or more
-- and most of their verdicts are below 85 %; it is at most 79.9 % certain if the tools' other calls
-- contradict it, and 69.9 % if they show that nothing is missing. Fault, reason and certainties are
-- those of the problem, which may have several messages. `typical`: the call's own fault is that of
-- its message. `input_error`: how the arguments violate the input schema. Templates that end alike
-- (`failed to list pods: connection refused`) are one message, whatever tool they name. A message of
-- several servers has one cause if the same is true for each server: whether any call to these tools
-- worked and, if so, whether most failed this way. For a tool's own failures and unclear ones, the
-- servers must also report the same name. `affected` counts the problem's calls, and `repeated`
-- those with the same tool, message and arguments.
WITH used AS MATERIALIZED (FROM _tool_sessions),
attributed AS MATERIALIZED (FROM _failure_kinds('used'))
SELECT
    cause, c.kind, server, tool, c.fault, c.suspected, c.reason, c.certainty, c.uncertain,
    a.hidden, c.hidden_certainty, affected, template, typical,
    count(*) OVER (PARTITION BY own_cause, tool_hash, template, arguments_hash) AS repeated,
    requested_at, session, call_id, input_error, input_path
FROM (
    SELECT failure_kind, hash(arguments) AS arguments_hash, requested_at, session, call_id
    FROM calls
    WHERE failure_kind IS NOT NULL
)
JOIN attributed a USING (failure_kind)
JOIN _causes('attributed') c USING (cause)
