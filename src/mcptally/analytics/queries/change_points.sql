-- When did the success rate of a tool or server change, and why?
-- Shows: level, server, tool, changed_at, success_rate_before, success_rate_after, calls_before, calls_after, sessions_before, sessions_after, cause, template, next_change, q_value
-- None: No success rate changed by more than chance explains.
SELECT *
FROM _changes(['tool', 'server'])
ORDER BY level, changed_at, server, tool
