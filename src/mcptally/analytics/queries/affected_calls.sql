-- Which failed calls does each problem of `priorities` concern?
-- Shows: cause, kind, server, tool, fault, certainty, template, requested_at, call_id
-- None: No call to a tool failed.
-- Failures of a server with the same cause form one problem, regardless of the tool: one for each
-- of the most frequent messages of a tool's own failures, and one for each other fault. Calls with
-- the same message are judged as a group: its fault is that of most of its calls, and null if that
-- is less than 70 % certain. It is `uncertain` if one or two texts decide about three calls or more
-- and most of their verdicts are below 85 %; it is at most 79.9 % certain if the tools' other calls
-- contradict it, and 69.9 % if they show that nothing is missing. `input_error`: how the arguments violate the input schema. Templates that end
-- alike (`failed to list pods: connection refused`) are one message, whatever tool they name. A
-- message of several servers has one cause if the same is true for each server: whether any call to
-- these tools worked and, if so, whether most failed this way. For a tool's own failures and unclear
-- ones, the servers must also report the same name. `repeated` counts the problem's calls with the
-- same tool, message and arguments.
WITH failed AS MATERIALIZED (
    SELECT
        server, tool, hash(hash(server), hash(tool)) AS tool_hash, session,
        coalesce(template, '(no text: ' || outcome || ')') AS template, fault, reason, certainty, hidden_certainty,
        outcome = 'hidden_error' AS hidden, requested_at, call_id, hash(error_text) AS text,
        hash(arguments) AS arguments_hash,
        CASE WHEN input_schema_state = 'invalid' THEN input_schema_error END AS input_error,
        CASE WHEN input_schema_state = 'invalid' THEN input_schema_path END AS input_path
    FROM calls
    WHERE dir = 'c2s' AND method = 'tools/call' AND tool IS NOT NULL AND _failed(outcome)
),
-- A template's message: without the tool's name, and only its end if other templates end alike.
said AS MATERIALIZED (
    SELECT
        server, tool_hash, template,
        CASE
            WHEN starts_with(template, '(no text') THEN '(no text)'
            WHEN ending <> '' AND count(*) OVER (PARTITION BY server, ending) > 1 THEN ending
            ELSE whole
        END AS message,
        -- The place in one tool's code that failed: `Parsing failed: x is undefined`.
        regexp_extract(whole, '^(?:[A-Z][a-z]+ )[a-z ]{3,40}: ') AS place
    FROM (
        SELECT
            server, any_value(tool) AS tool, tool_hash, template,
            CASE WHEN contains(template, any_value(tool)) AND length(any_value(tool)) > 2
                THEN regexp_replace(
                    template, '\b' || regexp_escape(any_value(tool)) || '\b', '<tool>', 'g'
                )
                ELSE template END AS whole,
            regexp_extract(whole, '(?:^|: )([^:]*[^:<>\W][^:]{11,})$', 1) AS ending
        FROM failed
        GROUP BY server, tool_hash, template
    )
),
-- Calls that failed with the same message form a group, regardless of the tool; calls without a
-- message are grouped by tool.
alike AS MATERIALIZED (
    SELECT
        f.*, message,
        CASE WHEN reason = 'exception_bug' AND place <> '' AND NOT starts_with(place, 'Error ')
            THEN printf('%s%016x', place, f.tool_hash) ELSE message END AS problem,
        hash(f.server, CASE WHEN message = '(no text)' THEN hash(f.tool_hash, f.template) END, message)
            AS words
    FROM failed f
    JOIN said w ON w.tool_hash = f.tool_hash AND w.template = f.template
),
-- Groups in which arguments or a status distinguish calls with the same message: no text has two
-- faults, and each fault is at least 85 % certain.
split AS MATERIALIZED (
    SELECT words, true AS is_split
    FROM (
        SELECT words, fault, avg(certainty) AS certainty
        FROM alike
        GROUP BY words, fault
    )
    GROUP BY words
    HAVING count(*) > 1 AND count(fault) = count(*) AND min(certainty) >= 85
        AND words NOT IN (
            SELECT words FROM alike GROUP BY words, text HAVING count(DISTINCT fault) > 1
        )
),
grouped AS MATERIALIZED (
    SELECT * EXCLUDE (words, is_split), CASE WHEN is_split THEN hash(words, fault) ELSE words END AS words
    FROM alike
    LEFT JOIN split USING (words)
),
-- The claim of most calls in a group.
claims AS MATERIALIZED (
    SELECT
        words,
        arg_max({fault: fault, reason: reason, sure: sure}, (calls, coalesce(reason, ''), coalesce(fault, ''))) AS claim,
        (claim).sure / sum(calls) AS certainty,
        sum(calls) >= 3 AND sum(texts) <= 2 AND 2 * sum(unsure) > sum(calls) AS doubtful
    FROM (
        SELECT
            words, fault, mode(reason ORDER BY reason) AS reason, count(*) AS calls,
            sum(certainty) AS sure, count(*) FILTER (certainty < 85) AS unsure,
            count(DISTINCT text) AS texts
        FROM grouped
        GROUP BY words, fault
    )
    GROUP BY words
),
-- The outcomes of other calls to the tools of each group.
others AS MATERIALIZED (
    SELECT
        words, count(DISTINCT tool_hash) AS tools, sum(u.ok) AS ok,
        sum(u.ok) FILTER (g.session IS NOT NULL) AS ok_beside,
        sum(u.calls) FILTER (g.session IS NOT NULL) AS calls_beside
    FROM (SELECT DISTINCT words, tool_hash FROM grouped)
    JOIN (
        SELECT
            hash(hash(server), hash(tool)) AS tool_hash, session, sum(calls) AS calls, sum(ok) AS ok
        FROM usage
        GROUP BY ALL
    ) u USING (tool_hash)
    LEFT JOIN (SELECT DISTINCT words, tool_hash, session FROM grouped) g
        USING (words, tool_hash, session)
    GROUP BY words
),
judged AS MATERIALIZED (
    SELECT
        g.* EXCLUDE (fault, reason, certainty, text), (c.claim).reason AS reason,
        (c.claim).fault AS suspected,
        -- Something is missing although the tool works in the same sessions; none of several
        -- tools has ever found what callers name; or the operator can also change what is refused.
        CASE (c.claim).reason
            WHEN 'misconfig_or_missing_dependency' THEN 10 * ok_beside >= calls_beside
            WHEN 'not_found' THEN suspected = 'caller' AND tools >= 3 AND ok = 0
            WHEN 'server_policy' THEN true
            ELSE false
        END AS contradicted,
        CASE WHEN suspected IS NULL THEN NULL
            WHEN contradicted AND (c.claim).reason = 'misconfig_or_missing_dependency'
                THEN least(c.certainty, 69.9)
            WHEN contradicted THEN least(c.certainty, 79.9) ELSE c.certainty END AS group_certainty,
        CASE WHEN group_certainty >= 70 THEN suspected END AS fault,
        coalesce(group_certainty >= 70 AND (doubtful OR contradicted), false) AS uncertain,
        group_certainty AS certainty, g.fault IS NOT DISTINCT FROM suspected AS typical
    FROM grouped g
    JOIN claims c USING (words)
    LEFT JOIN others USING (words)
),
-- The three most frequent messages of a server's own failures (or places where its code fails) are
-- separate causes, unless they make up less than a tenth of these failures.
frequent AS (
    SELECT server, problem
    FROM judged
    WHERE coalesce(fault, 'tool') = 'tool'
    GROUP BY server, problem
    QUALIFY row_number() OVER (PARTITION BY server ORDER BY count(*) DESC, problem) <= 3
        AND 10 * count(*) >= sum(count(*)) OVER (PARTITION BY server)
),
caused AS MATERIALIZED (
    SELECT
        j.*, f.problem IS NOT NULL AS is_frequent,
        CASE
            WHEN hidden AND fault IN ('caller', 'account') THEN 'unmarked'
            WHEN fault IS NULL THEN 'unclear'
            WHEN fault = 'tool' AND reason = 'misconfig_or_missing_dependency' THEN 'misconfigured'
            WHEN fault = 'tool' THEN 'tool_failures'
            WHEN fault IN ('upstream', 'network') THEN 'unavailable'
            ELSE fault
        END AS kind,
        hash(kind, j.server, CASE
            WHEN kind IN ('tool_failures', 'unclear') THEN coalesce(f.problem, '')
            WHEN kind = 'caller' AND reason = 'server_policy' THEN reason
            WHEN kind = 'unavailable' AND reason LIKE '%timeout%' THEN 'timeout'
            WHEN kind = 'unavailable' AND j.message = '(no text)' THEN j.message
        END) AS own_cause
    FROM judged j
    LEFT JOIN frequent f
        ON f.problem = j.problem AND f.server IS NOT DISTINCT FROM j.server
),
-- Facts about the most frequent message of each cause, other than its words.
representatives AS (
    SELECT
        own_cause, kind, message, any_value(server) AS server,
        CASE WHEN kind IN ('tool_failures', 'unclear')
            AND mode(reason ORDER BY reason) IS DISTINCT FROM 'removed_api'
            THEN coalesce(any_value(server_name), 'label ' || any_value(server)) END AS software,
        min(call_id) AS call_id
    FROM caused
    LEFT JOIN (
        SELECT server, mode(server_name ORDER BY server_name) AS server_name
        FROM recordings
        GROUP BY server
    )
        USING (server)
    WHERE message <> '(no text)'
        AND (kind IN ('misconfigured', 'unavailable', 'client') OR is_frequent)
    GROUP BY own_cause, kind, message
    QUALIFY row_number() OVER (PARTITION BY own_cause ORDER BY count(*) DESC, message) = 1
),
-- Facts about each cause at a single server.
rates AS (
    SELECT
        own_cause, sum(ok) = 0 AS never_worked,
        2 * sum(affected) >= sum(greatest(ended, affected)) AS mostly_failed
    FROM (SELECT own_cause, tool_hash, count(*) AS affected FROM caused GROUP BY ALL)
    JOIN (
        SELECT
            hash(hash(server), hash(tool)) AS tool_hash, sum(ok) AS ok,
            sum(ok + hidden_errors + tool_errors + protocol_errors + timeouts + no_responses)
                AS ended
        FROM usage
        GROUP BY tool_hash
    ) USING (tool_hash)
    GROUP BY own_cause
),
-- Messages that several servers share have the same cause: for a tool's own failures, which concern
-- its code, only if the servers report the same name; for an outage, only if name resolution failed
-- or the same address cannot be reached.
common AS (
    SELECT
        own_cause,
        hash(kind, message, software, target, never_worked, never_worked OR mostly_failed) AS shared,
        CASE WHEN count(*) OVER (PARTITION BY shared) > 1 THEN shared ELSE own_cause END AS cause
    FROM (
        SELECT
            own_cause, kind, message, software, never_worked, mostly_failed,
            -- Node.js says only `fetch failed` if it cannot resolve a name.
            CASE WHEN kind = 'unavailable' AND NOT regexp_matches(message, '(?i)enotfound'
                || '|eai_again|getaddrinfo|name ?resolution|to resolve|not known|no such host'
                || '|fetch failed')
                THEN coalesce(_address(error_text), 'label ' || server) END AS target
        FROM representatives
        JOIN rates USING (own_cause)
        JOIN (SELECT call_id, error_text FROM calls) USING (call_id)
    )
)
SELECT
    printf('%016x', coalesce(cause, own_cause)) AS cause, kind, server, tool, fault, suspected,
    reason, certainty, uncertain, hidden, hidden_certainty, template, typical,
    count(*) OVER (PARTITION BY own_cause, tool_hash, template, arguments_hash) AS repeated,
    requested_at, session, call_id, input_error, input_path
FROM caused c
LEFT JOIN common USING (own_cause)
