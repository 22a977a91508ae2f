-- The kinds of failed calls to tools, with the cause that `affected_calls` and `priorities` give.
-- Of: used
-- `used` is a table with the rows of `_tool_sessions`.
WITH kinds AS MATERIALIZED (
    SELECT
        failure_kind, server, tool, hash(hash(server), hash(tool)) AS tool_hash, template, fault,
        reason, certainty, hidden_certainty, outcome = 'hidden_error' AS hidden,
        CASE WHEN input_schema_state = 'invalid' THEN input_schema_error END AS input_error,
        CASE WHEN input_schema_state = 'invalid' THEN input_schema_path END AS input_path,
        -- The call failed because an earlier call was denied access to the same file.
        rule IS NOT DISTINCT FROM 'verdict.misconfig.denied-before' AS follows,
        coalesce(fault = 'upstream' AND regexp_matches(
            error_text, '\b(?:localhost|127\.\d+\.\d+\.\d+)\b|\[::1\]'
        ), false) AS is_local,
        calls, first_seen, last_seen, call_id, error_text
    FROM _kinds_of_failures
    WHERE method = 'tools/call' AND tool IS NOT NULL
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
        FROM kinds
        GROUP BY server, tool_hash, template
    )
),
-- Calls that failed with the same message form a group, regardless of the tool; calls without a
-- message are grouped by tool.
alike AS MATERIALIZED (
    SELECT
        k.*, message,
        CASE WHEN reason = 'exception_bug' AND place <> '' AND NOT starts_with(place, 'Error ')
            THEN printf('%s%016x', place, k.tool_hash) ELSE message END AS problem,
        hash(k.server, CASE WHEN message = '(no text)' THEN hash(k.tool_hash, k.template) END, message)
            AS words
    FROM kinds k
    JOIN said w ON w.tool_hash = k.tool_hash AND w.template = k.template
),
-- The texts of groups with several faults or uncertain calls; no others can be split or doubtful.
texts AS MATERIALIZED (
    SELECT DISTINCT failure_kind, hash(error_text) AS text_hash
    FROM calls
    JOIN (
        SELECT failure_kind
        FROM alike
        SEMI JOIN (
            SELECT words
            FROM alike
            GROUP BY words
            HAVING bool_or(certainty < 85) OR min(coalesce(fault, '')) <> max(coalesce(fault, ''))
        ) USING (words)
    ) USING (failure_kind)
),
-- Groups in which arguments or a status distinguish calls with the same message: no text has two
-- faults, and each fault is at least 85 % certain.
split AS MATERIALIZED (
    SELECT words, true AS is_split
    FROM (
        SELECT
            words, fault,
            sum(certainty * calls) / sum(calls) FILTER (certainty IS NOT NULL) AS certainty
        FROM alike
        GROUP BY words, fault
    )
    GROUP BY words
    HAVING count(*) > 1 AND count(fault) = count(*) AND min(certainty) >= 85
        AND words NOT IN (
            SELECT words
            FROM alike
            JOIN texts USING (failure_kind)
            GROUP BY words, text_hash
            HAVING count(DISTINCT fault) > 1
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
        sum(calls) >= 3 AND any_value(texts) <= 2 AND 2 * sum(unsure) > sum(calls) AS doubtful,
        2 * sum(local) > sum(calls) AS is_local
    FROM (
        SELECT
            words, fault, arg_min(reason, (-calls, reason)) AS reason, sum(calls) AS calls,
            sum(sure) AS sure, sum(unsure) AS unsure, sum(local) AS local
        FROM (
            SELECT
                words, fault, reason, sum(calls) AS calls, sum(certainty * calls) AS sure,
                sum(CASE WHEN certainty < 85 THEN calls ELSE 0 END) AS unsure,
                sum(CASE WHEN is_local THEN calls ELSE 0 END) AS local
            FROM grouped
            GROUP BY words, fault, reason
        )
        GROUP BY words, fault
    )
    LEFT JOIN (
        SELECT words, count(*) AS texts
        FROM (SELECT DISTINCT words, fault, text_hash FROM grouped JOIN texts USING (failure_kind))
        GROUP BY words
    ) USING (words)
    GROUP BY words
),
-- The outcomes of other calls to the tools of each group whose claim they can contradict.
contradictable AS MATERIALIZED (
    SELECT DISTINCT words, tool_hash, (claim).reason AS reason
    FROM grouped
    JOIN claims USING (words)
    WHERE (claim).reason IN ('misconfig_or_missing_dependency', 'not_found')
        OR ((claim).fault = 'upstream' AND claims.is_local)
),
tool_counts AS MATERIALIZED (
    SELECT tool_hash, sum(ok) AS ok, sum(ended) AS ended FROM query_table(used) GROUP BY tool_hash
),
others AS (
    SELECT words, count(*) AS tools, sum(ok) AS ok
    FROM contradictable
    JOIN tool_counts USING (tool_hash)
    WHERE reason <> 'misconfig_or_missing_dependency'
    GROUP BY words
),
beside AS (
    SELECT words, sum(ok) AS ok_beside, sum(calls) AS calls_beside
    FROM (
        SELECT DISTINCT words, tool_hash, hash(session) AS session_hash
        FROM calls
        JOIN (SELECT failure_kind, words, tool_hash FROM grouped) USING (failure_kind)
        SEMI JOIN (SELECT words FROM contradictable WHERE reason = 'misconfig_or_missing_dependency')
            USING (words)
    )
    JOIN query_table(used) USING (tool_hash, session_hash)
    GROUP BY words
),
judged AS MATERIALIZED (
    SELECT
        g.* EXCLUDE (fault, reason, certainty, is_local), (c.claim).reason AS reason,
        (c.claim).fault AS suspected,
        -- Something is missing although the tool works in the same sessions; none of several
        -- tools has ever found what callers name; the operator could allow what is refused; or
        -- nothing has ever answered at a local address, which may be a wrong setting.
        CASE (c.claim).reason
            WHEN 'misconfig_or_missing_dependency' THEN 10 * ok_beside >= calls_beside
            WHEN 'not_found' THEN suspected = 'caller' AND tools >= 3 AND ok = 0
            WHEN 'server_policy' THEN true
            ELSE suspected = 'upstream' AND c.is_local AND ok = 0
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
    LEFT JOIN beside USING (words)
),
-- The three most frequent messages of a server's own failures (or places where its code fails) are
-- separate causes, unless they make up less than a tenth of these failures.
frequent AS (
    SELECT server, problem
    FROM judged
    WHERE coalesce(fault, 'tool') = 'tool'
    GROUP BY server, problem
    QUALIFY row_number() OVER (PARTITION BY server ORDER BY sum(calls) DESC, problem) <= 3
        AND 10 * sum(calls) >= sum(sum(calls)) OVER (PARTITION BY server)
),
caused AS MATERIALIZED (
    SELECT
        j.*, f.problem IS NOT NULL AS is_frequent,
        CASE
            WHEN hidden AND fault IN ('caller', 'account') THEN 'unmarked'
            WHEN reason = 'not_connected' THEN 'unavailable'
            WHEN fault IS NULL THEN 'unclear'
            WHEN fault IN ('tool', 'client') AND reason = 'misconfig_or_missing_dependency'
                THEN 'misconfigured'
            WHEN fault = 'tool' THEN 'tool_failures'
            WHEN fault IN ('upstream', 'network') THEN 'unavailable'
            ELSE fault
        END AS kind,
        hash(kind, j.server, CASE
            WHEN kind = 'unclear' AND reason = 'masked' THEN reason
            WHEN kind IN ('tool_failures', 'unclear') THEN coalesce(f.problem, '')
            WHEN kind = 'client' OR kind = 'caller' AND reason = 'server_policy' THEN reason
            WHEN kind = 'misconfigured' THEN fault
            WHEN kind = 'unavailable' AND reason LIKE '%timeout%' THEN 'timeout'
            WHEN reason = 'not_connected' THEN reason
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
            AND arg_min(reason, (-calls, reason)) IS DISTINCT FROM 'removed_api'
            THEN coalesce(any_value(server_name), 'label ' || any_value(server)) END AS software,
        arg_min(error_text, first_call) AS error_text
    FROM (
        SELECT
            own_cause, kind, message, reason, any_value(server) AS server, sum(calls) AS calls,
            min((first_seen, call_id)) AS first_call,
            arg_min(error_text, (first_seen, call_id)) AS error_text
        FROM caused
        WHERE message <> '(no text)'
            AND (kind IN ('misconfigured', 'unavailable', 'client') OR is_frequent)
        GROUP BY own_cause, kind, message, reason
    )
    LEFT JOIN (
        SELECT server, mode(server_name ORDER BY server_name) AS server_name
        FROM recordings
        GROUP BY server
    )
        USING (server)
    GROUP BY own_cause, kind, message
    QUALIFY row_number() OVER (PARTITION BY own_cause ORDER BY sum(calls) DESC, message) = 1
),
-- Facts about each cause at a single server.
rates AS (
    SELECT
        own_cause, sum(ok) = 0 AS never_worked,
        2 * sum(affected) >= sum(greatest(ended, affected)) AS mostly_failed
    FROM (SELECT own_cause, tool_hash, sum(calls) AS affected FROM caused GROUP BY ALL)
    JOIN tool_counts USING (tool_hash)
    GROUP BY own_cause
),
-- A message that several servers share has one cause. Exceptions: a tool's own failures, which
-- concern its code, unless the servers report the same name; and outages, unless name resolution
-- failed or the same address cannot be reached.
common AS (
    SELECT
        own_cause,
        hash(kind, message, software, target, never_worked, never_worked OR mostly_failed) AS shared,
        CASE WHEN count(*) OVER (PARTITION BY shared) > 1 THEN shared ELSE own_cause END AS cause
    FROM (
        SELECT
            own_cause, kind, message, software, never_worked, mostly_failed,
            -- Node.js says only `fetch failed` if it cannot resolve a name.
            CASE WHEN kind = 'unavailable' AND NOT contains(lower(message), 'fetch failed')
                AND _symptom(message) IS DISTINCT FROM 'host_name'
                THEN coalesce(_address(error_text), 'label ' || server) END AS target
        FROM representatives
        JOIN rates USING (own_cause)
    )
)
SELECT
    printf('%016x', coalesce(cause, own_cause)) AS cause, c.own_cause, failure_kind, kind, server, tool,
    tool_hash, fault, suspected, reason, certainty, uncertain, hidden, hidden_certainty, template,
    typical, follows, calls::BIGINT AS calls, first_seen, last_seen, input_error, input_path,
    CASE WHEN kind = 'unavailable' THEN _symptom(concat_ws(' ', error_text, template)) END AS symptom
FROM caused c
LEFT JOIN common USING (own_cause)
