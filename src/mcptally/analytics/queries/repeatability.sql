-- Does each call always, sometimes or never fail when it is made with the same arguments?
-- Shows: server, tool, repeatability, same_failed, same_calls, outcome, requested_at, call_id
-- None: No call to a tool has arguments and an outcome that can be compared.
-- `always_fails`, `sometimes_fails` and `never_fails` are about two or more calls to a tool with the
-- same text of arguments, in any session; `alone` is a call whose arguments no other call has.
-- Calls without an outcome or arguments are left out, as are masked arguments, which may differ.
WITH same AS (
    SELECT same_hash, count(*) AS same_calls, count(*) FILTER (_failed(outcome)) AS same_failed
    FROM _comparable_calls
    GROUP BY same_hash
)
SELECT
    server, tool, _repeatability(same_failed, same_calls) AS repeatability,
    same_failed, same_calls, outcome, session, requested_at, same_hash, call_id
FROM _comparable_calls
JOIN same USING (same_hash)
