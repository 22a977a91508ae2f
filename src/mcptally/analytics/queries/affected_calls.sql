-- Which failed calls does each problem of `priorities` concern?
-- Shows: cause, kind, server, tool, fault, certainty, template, requested_at, call_id
-- None: No call to a tool failed.
-- Failures of a server with the same cause are one problem, whatever tools they concern: each of
-- the most frequent messages of the tool's own failures, and otherwise each fault. The template of
-- an error is judged as a group: its fault is that of most of its calls, and null if that is less
-- than 70 % certain. Below 80 % it is `uncertain` if one or two texts decide about three calls or
-- more. Templates that end alike (`failed to list pods: connection refused`) are one
-- message, whatever tool they name. What several servers say alike has one cause; about a tool's
-- own failures and unclear ones only if the servers report the same name.
WITH failed AS MATERIALIZED (
    SELECT
        server, tool, hash(hash(server), hash(tool)) AS tool_hash, session,
        coalesce(template, '(no text: ' || outcome || ')') AS template, fault, reason, certainty, hidden_certainty,
        outcome = 'hidden_error' AS hidden, requested_at, call_id, hash(error_text) AS text
    FROM calls
    WHERE dir = 'c2s' AND method = 'tools/call' AND tool IS NOT NULL AND _failed(outcome)
),
-- What most calls of a group say.
claims AS MATERIALIZED (
    SELECT
        tool_hash, template,
        arg_max({fault: fault, reason: reason, sure: sure}, (calls, coalesce(reason, ''), coalesce(fault, ''))) AS claim,
        (claim).sure / sum(calls) AS certainty,
        sum(calls) >= 3 AND sum(texts) <= 2 AS few_texts
    FROM (
        SELECT
            tool_hash, template, fault, mode(reason ORDER BY reason) AS reason, count(*) AS calls,
            sum(certainty) AS sure, count(DISTINCT text) AS texts
        FROM failed
        GROUP BY tool_hash, template, fault
    )
    GROUP BY tool_hash, template
),
judged AS MATERIALIZED (
    SELECT
        f.* EXCLUDE (fault, reason, certainty, text), (c.claim).reason AS reason,
        (c.claim).fault AS suspected, CASE WHEN suspected IS NOT NULL THEN c.certainty END AS certainty,
        CASE WHEN c.certainty >= 70 THEN suspected END AS fault,
        few_texts AND c.certainty >= 70 AND c.certainty < 80 AS uncertain,
        f.fault IS NOT DISTINCT FROM suspected AS typical
    FROM failed f
    JOIN claims c USING (tool_hash, template)
),
-- What a template says: without the name of the tool, and only its end if others end alike.
said AS MATERIALIZED (
    SELECT
        server, tool, template,
        CASE
            WHEN starts_with(template, '(no text') THEN '(no text)'
            WHEN ending <> '' AND count(*) OVER (PARTITION BY server, ending) > 1 THEN ending
            ELSE whole
        END AS message
    FROM (
        SELECT
            server, tool, template,
            CASE WHEN contains(template, tool) AND length(tool) > 2
                THEN regexp_replace(template, '\b' || regexp_escape(tool) || '\b', '<tool>', 'g')
                ELSE template END AS whole,
            regexp_extract(whole, '(?:^|: )([^:]*[^:<>\W][^:]{11,})$', 1) AS ending
        FROM judged
        GROUP BY server, tool, template
    )
),
-- The three most frequent messages of a server's own failures are causes of their own, unless they
-- are less than a tenth of them.
frequent AS (
    SELECT j.server, message
    FROM judged j
    JOIN said w
        ON w.template = j.template AND w.tool = j.tool AND w.server IS NOT DISTINCT FROM j.server
    WHERE coalesce(fault, 'tool') = 'tool'
    GROUP BY j.server, message
    QUALIFY row_number() OVER (PARTITION BY j.server ORDER BY count(*) DESC, message) <= 3
        AND 10 * count(*) >= sum(count(*)) OVER (PARTITION BY j.server)
),
caused AS MATERIALIZED (
    SELECT
        j.*, w.message, f.message IS NOT NULL AS is_frequent,
        CASE
            WHEN hidden AND fault IN ('caller', 'account') THEN 'unmarked'
            WHEN fault IS NULL THEN 'unclear'
            WHEN fault = 'tool' AND reason = 'misconfig_or_missing_dependency' THEN 'misconfigured'
            WHEN fault = 'tool' THEN 'tool_failures'
            WHEN fault IN ('upstream', 'network') THEN 'unavailable'
            ELSE fault
        END AS kind,
        hash(kind, j.server, CASE
            WHEN kind IN ('tool_failures', 'unclear') THEN coalesce(f.message, '')
            WHEN kind = 'unavailable' AND reason LIKE '%timeout%' THEN 'timeout'
        END) AS own_cause
    FROM judged j
    LEFT JOIN said w
        ON w.template = j.template AND w.tool = j.tool AND w.server IS NOT DISTINCT FROM j.server
    LEFT JOIN frequent f
        ON f.message = w.message AND f.server IS NOT DISTINCT FROM j.server
),
-- What the most frequent message of each cause is about, besides its words.
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
-- Where several servers say the same, they have the same cause: of a tool's own failures, which are
-- about its code, if the servers report the same name; of an outage, if it is name resolution or the
-- same address that cannot be reached.
common AS (
    SELECT
        own_cause,
        CASE WHEN count(*) OVER (PARTITION BY kind, message, software, target) > 1
            THEN hash(kind, message, software, target) ELSE own_cause END AS cause
    FROM (
        SELECT
            own_cause, kind, message, software,
            -- Node.js says only `fetch failed` if it cannot resolve a name.
            CASE WHEN kind = 'unavailable' AND NOT regexp_matches(message, '(?i)enotfound'
                || '|eai_again|getaddrinfo|name ?resolution|to resolve|not known|no such host'
                || '|fetch failed')
                THEN coalesce(_address(error_text), 'label ' || server) END AS target
        FROM representatives
        JOIN (SELECT call_id, error_text FROM calls) USING (call_id)
    )
)
SELECT
    printf('%016x', coalesce(cause, own_cause)) AS cause, kind, server, tool, fault, suspected,
    reason, certainty, uncertain, hidden, hidden_certainty, template, typical, requested_at, session, call_id
FROM caused c
LEFT JOIN common USING (own_cause)
