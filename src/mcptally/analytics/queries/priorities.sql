-- Which problems matter most: what is wrong, whose fault, how many calls, and since when?
-- Shows: rank, kind, servers, tools, fault, certainty, affected, calls, since, message, call_id
-- None: No problem was found.
-- One row per cause, see `affected_calls`. `impact` is the product of the weight of the kind, the
-- sum over sessions of the square root of their affected calls (so that a client in a loop counts
-- less), a quarter plus three quarters of the share of affected calls, and one plus the servers'
-- share of all calls (where a session's calls count less, too). `since` is a detected change, which
-- a change of clients may explain (`client_changed`); `from_start`: the first session with these
-- tools was affected, too. For several servers, only facts that are true for each are reported.
-- `tools` are tools that the servers have, of which the first `prominent` have at least a tenth as
-- many affected calls as the first; `unlisted_calls` have other names. `symptoms` are what an
-- outage's texts report, and `other_symptoms` whether some report something else. `call_id` is
-- the first call with the most frequent combination of tool, message and arguments. `exception` is what the
-- server wrote to stderr while it answered that call with `message`, or its last words when it crashed.
WITH used AS MATERIALIZED (FROM _tool_sessions),
attributed AS MATERIALIZED (FROM _failure_kinds('used')),
tool_counts AS MATERIALIZED (
    SELECT tool_hash, sum(ok) AS ok, sum(ended) AS ended FROM used GROUP BY tool_hash
),
server_counts AS MATERIALIZED (
    SELECT
        server_hash, sum(sqrt(calls)) AS weighted, sum(calls)::BIGINT AS calls, sum(ok)::BIGINT AS ok,
        count(*) AS sessions
    FROM (
        SELECT server_hash, sum(calls)::DOUBLE AS calls, sum(ok) AS ok
        FROM used
        GROUP BY server_hash, session_hash
    )
    GROUP BY server_hash
),
-- Names that are not tools: no listing has them, or nine of ten calls are refused as unknown.
no_tools AS MATERIALIZED (
    SELECT hash(hash(server), hash(tool)) AS tool_hash FROM _unlisted_names
    UNION
    SELECT tool_hash
    FROM (
        SELECT
            tool_hash, sum(calls) FILTER (reason = 'unknown_tool') AS unknown, sum(calls) AS failed
        FROM attributed
        GROUP BY tool_hash
    )
    JOIN tool_counts USING (tool_hash)
    WHERE unknown >= 0.9 * failed AND ok = 0
),
-- The tools of each cause, and all their calls by session.
cause_tools AS MATERIALIZED (
    SELECT c.*, n.tool_hash IS NOT NULL AS is_unlisted
    FROM (
        SELECT
            cause, tool_hash, any_value(server) AS server, any_value(tool) AS tool,
            sum(calls)::BIGINT AS affected
        FROM attributed
        GROUP BY cause, tool_hash
    ) c
    LEFT JOIN no_tools n USING (tool_hash)
),
affected AS MATERIALIZED (
    SELECT
        cause, hash(session) AS session_hash, count(*)::DOUBLE AS y,
        bool_or(a.reason = 'server_crash') AS crashed
    FROM calls
    JOIN attributed a USING (failure_kind)
    GROUP BY cause, session_hash
),
cause_sessions AS MATERIALIZED (
    SELECT
        cause, session_hash, any_value(server_hash) AS server_hash, sum(ended)::DOUBLE AS ended,
        sum(ok) AS ok, min(started) AS started
    FROM cause_tools
    JOIN used USING (tool_hash)
    GROUP BY cause, session_hash
),
rates AS (
    SELECT
        cause, sum(ended)::BIGINT AS calls, sum(ok)::BIGINT AS ok,
        count(*) FILTER (y > 0) AS sessions, count(*) FILTER (crashed) AS crashes, sum(sqrt(coalesce(y, 0))) AS weighted,
        _interval(_moments(greatest(ended, coalesce(y, 0)), coalesce(y, 0))) AS share
    FROM cause_sessions
    LEFT JOIN affected USING (cause, session_hash)
    GROUP BY cause
),
beginnings AS (
    SELECT
        cause, CASE WHEN count(*) = 1 OR bool_and(from_start) THEN bool_and(from_start) END
            AS from_start
    FROM (
        SELECT
            cause, server_hash, arg_min(y IS NOT NULL, (started, y IS NULL))
                FILTER (started IS NOT NULL) AS from_start
        FROM cause_sessions
        LEFT JOIN affected USING (cause, session_hash)
        GROUP BY cause, server_hash
    )
    GROUP BY cause
),
causes AS MATERIALIZED (FROM _causes('attributed')),
-- The servers with their shares of affected calls: an overall share would describe none of them.
shares AS (
    SELECT
        cause, list(server ORDER BY affected DESC, server) AS servers,
        list(server_rate ORDER BY affected DESC, server) AS server_rates
    FROM (
        SELECT
            cause, server, sum(affected) AS affected,
            sum(affected) / sum(greatest(ended, affected)) AS server_rate
        FROM cause_tools
        JOIN tool_counts USING (tool_hash)
        GROUP BY cause, server
    )
    GROUP BY cause
),
-- The number of calls that violate the input schema, and the most frequent violation.
inputs AS (
    SELECT
        cause, sum(calls)::BIGINT AS invalid_inputs,
        arg_max({path: input_path, error: input_error}, (calls, input_path, input_error)) AS input
    FROM (
        SELECT cause, input_path, input_error, sum(calls) AS calls
        FROM attributed
        WHERE input_error IS NOT NULL
        GROUP BY ALL
    )
    GROUP BY cause
),
-- What at least four fifths of an outage's calls report, most frequent first; null if it is unknown
-- or more than three things.
symptoms AS (
    SELECT
        cause, CASE WHEN count(*) <= 3 AND bool_and(symptom IS NOT NULL)
            THEN list(symptom ORDER BY calls DESC, symptom) END AS symptoms,
        max(so_far) < any_value(all_calls) AS other_symptoms
    FROM (
        SELECT
            cause, symptom, sum(calls) AS calls, sum(sum(calls)) OVER most AS so_far,
            sum(sum(calls)) OVER (PARTITION BY cause) AS all_calls
        FROM attributed
        WHERE kind = 'unavailable'
        GROUP BY cause, symptom
        WINDOW most AS (PARTITION BY cause ORDER BY sum(calls) DESC, symptom)
        QUALIFY so_far - sum(calls) < 0.8 * all_calls
    )
    GROUP BY cause
),
-- The most frequent template with the fault of most calls represents the cause, unless its calls
-- failed because of others.
templates AS (
    SELECT
        cause, count(*) AS templates, arg_max(template, (agrees, direct, calls, template)) AS template,
        max(agrees) AS agrees
    FROM (
        SELECT
            cause, template, sum(a.calls) AS calls, a.fault IS NOT DISTINCT FROM c.fault AS agrees,
            bool_or(NOT follows) AS direct
        FROM attributed a
        JOIN causes c USING (cause)
        GROUP BY cause, template, agrees
    )
    GROUP BY cause
),
representing AS MATERIALIZED (
    SELECT
        cause, own_cause, failure_kind, a.tool_hash, typical,
        (a.fault IS NOT DISTINCT FROM c.fault) = t.agrees AS agrees
    FROM attributed a
    JOIN templates t USING (cause, template)
    JOIN causes c USING (cause)
),
combinations AS (
    SELECT
        r.*, arguments_hash, first_seen,
        sum(calls) OVER (PARTITION BY own_cause, tool_hash, arguments_hash) AS repeated
    FROM representing r
    JOIN (
        SELECT
            failure_kind, hash(arguments) AS arguments_hash, count(*) AS calls,
            min(requested_at) AS first_seen
        FROM calls
        WHERE failure_kind IS NOT NULL
        GROUP BY ALL
    ) USING (failure_kind)
),
-- Only few blocks of `calls` contain these times, so few texts and ids are read.
examples AS (
    SELECT cause, min(call_id) AS call_id, arg_min({
        message: left(error_text, 300), verdict: verdict,
        exception: left(coalesce(
            stderr_error, CASE WHEN reason = 'server_crash' THEN last_words END
        ), 300)
    }, call_id) AS example
    FROM calls c
    JOIN (
        SELECT cause, arg_min(
            {failure_kind: failure_kind, arguments_hash: arguments_hash, first_seen: first_seen},
            (NOT typical, -repeated, first_seen, failure_kind, arguments_hash)
        ) AS chosen
        FROM combinations
        WHERE agrees
        GROUP BY cause
    )
        ON c.requested_at IS NOT DISTINCT FROM (chosen).first_seen
        AND c.failure_kind = (chosen).failure_kind
        AND hash(c.arguments) = (chosen).arguments_hash
    LEFT JOIN (SELECT recording, last_words FROM recordings) USING (recording)
    GROUP BY cause
),
named AS (
    SELECT
        cause, coalesce(list(tool ORDER BY affected DESC, tool) FILTER (NOT is_unlisted), [])
            AS tools,
        coalesce(list(tool ORDER BY affected DESC, tool) FILTER (is_unlisted), []) AS unlisted,
        coalesce(sum(affected) FILTER (is_unlisted), 0)::BIGINT AS unlisted_calls,
        count(*) FILTER (NOT is_unlisted AND 10 * affected >= most) AS prominent
    FROM (
        SELECT
            cause, tool, sum(affected) AS affected, bool_and(is_unlisted) AS is_unlisted,
            max(sum(affected)) FILTER (NOT bool_and(is_unlisted)) OVER (PARTITION BY cause) AS most
        FROM cause_tools
        GROUP BY cause, tool
    )
    GROUP BY cause
),
-- The latest lasting deterioration of a tool that the cause explains.
onsets AS (
    SELECT
        t.cause, CASE WHEN count(DISTINCT t.server) = any_value(servers) THEN max(c.changed_at) END
            AS since
    FROM cause_tools t
    JOIN causes USING (cause)
    JOIN (SELECT cause, len(servers) AS servers FROM shares) USING (cause)
    JOIN _tool_changes('used') c ON c.tool_hash = t.tool_hash
        AND c.changed_at BETWEEN first_seen - INTERVAL 1 MINUTE AND last_seen
    GROUP BY t.cause
),
-- DuckDB expects one row from a list, and thus keeps these rows, not the calls, in a hash table.
changed_tools AS MATERIALIZED (
    SELECT unnest(list({cause: cause, server: server, tool: tool, since: since}), recursive := true)
    FROM onsets
    JOIN cause_tools USING (cause)
    WHERE since IS NOT NULL
),
-- Onsets that a change of clients explains: if only calls by the same client are compared (with
-- Mantel-Haenszel weights), the rise is less than half as large, or no client has calls on both sides.
other_clients AS (
    SELECT cause, true AS client_changed
    FROM (
        SELECT
            cause, count(*) FILTER (requested_at >= since)::DOUBLE AS after,
            count(*) FILTER (requested_at < since)::DOUBLE AS before,
            count(*) FILTER (requested_at >= since AND _failed(outcome)) AS failed_after,
            count(*) FILTER (requested_at < since AND _failed(outcome)) AS failed_before,
            after * before / (after + before) AS weight
        FROM changed_tools t
        JOIN calls c ON c.server IS NOT DISTINCT FROM t.server AND c.tool = t.tool
        WHERE method = 'tools/call' AND _ended(outcome)
        GROUP BY cause, c.client
    )
    GROUP BY cause
    HAVING coalesce(
        sum(weight * (failed_after / after - failed_before / before)) FILTER (weight > 0)
            / nullif(sum(weight), 0), 0
    ) < 0.5 * (sum(failed_after) / sum(after) - sum(failed_before) / sum(before))
),
server_calls AS (
    SELECT
        cause, sum(weighted) AS weighted, sum(calls) AS calls, sum(ok) AS ok,
        sum(sessions) AS sessions
    FROM (SELECT DISTINCT cause, server FROM cause_tools)
    JOIN server_counts ON server_hash = hash(server)
    GROUP BY cause
),
-- Calls to the cause's tools that were rejected before they reached the service that failed.
rejections AS (
    SELECT t.cause, sum(r.rejected) AS rejected
    FROM cause_tools t
    JOIN causes USING (cause)
    JOIN (
        SELECT tool_hash, sum(calls) AS rejected
        FROM attributed
        WHERE fault = 'caller'
        GROUP BY tool_hash
    ) r USING (tool_hash)
    WHERE kind IN ('misconfigured', 'unavailable', 'account')
    GROUP BY t.cause
),
failures AS (
    SELECT
        causes.cause AS cause, kind, servers, tools, unlisted, unlisted_calls, fault, uncertain, suspected, reason, certainty, hidden_certainty, affected,
        hidden, r.calls, r.ok, r.sessions, affected / r.calls AS rate, share.low AS rate_low,
        share.high AS rate_high,
        _insufficient_data(share) AS insufficient_data,
        since, client_changed, from_start, symptoms, other_symptoms, prominent,
        first_seen, last_seen, templates, template,
        server_rates, coalesce(invalid_inputs, 0) AS invalid_inputs, input.path AS input_path,
        input.error AS input_error, example.message AS message, example.exception AS exception,
        example.verdict AS verdict,
        x.call_id AS call_id,
        least(1, affected / greatest(1, r.calls - coalesce(rejected, 0))) AS reached_rate,
        r.weighted * (0.25 + 0.75 * reached_rate) * (1 + r.weighted / n.weighted)
            * CASE WHEN n.ok = 0 AND 3 * affected >= n.calls
                    OR kind IN ('misconfigured', 'unavailable', 'account')
                        AND r.ok = 0 AND 3 * reached_rate >= 1 AND affected >= 5
                THEN 1.5 ELSE 1 END
            * CASE WHEN template LIKE '(no text%' AND kind = 'unclear' THEN 0.5 ELSE 1 END AS size_of_calls,
        -- A crash costs as many calls as a session has.
        CASE WHEN reason = 'server_crash' THEN greatest(
            2 * size_of_calls,
            1.5 * crashes * n.weighted / n.sessions * (0.25 + 0.75 * crashes / n.sessions)
        ) ELSE size_of_calls END AS size
    FROM causes
    JOIN server_calls n USING (cause)
    JOIN rates r USING (cause)
    JOIN beginnings USING (cause)
    JOIN templates USING (cause)
    JOIN examples x USING (cause)
    JOIN named USING (cause)
    JOIN shares USING (cause)
    LEFT JOIN inputs USING (cause)
    LEFT JOIN symptoms USING (cause)
    LEFT JOIN rejections USING (cause)
    LEFT JOIN onsets USING (cause)
    LEFT JOIN other_clients USING (cause)
),
broken AS (
    SELECT
        server, list(tool ORDER BY broken DESC, tool) AS tools, sum(broken)::BIGINT AS affected,
        arg_max({message: message, call_id: call_id}, (broken, tool)) AS most
    FROM (
        SELECT
            server, tool, sum(calls) AS broken,
            arg_max(example, (calls, path)) AS message, arg_max(call_id, (calls, path)) AS call_id
        FROM _schema_violations(['output'])
        WHERE state IN ('invalid', 'missing_output')
        GROUP BY server, tool
    )
    GROUP BY server
),
changed AS (
    SELECT
        server, list(DISTINCT tool ORDER BY tool) AS tools, sum(calls)::BIGINT AS calls,
        max(first_seen) AS first_seen, arg_max(changed[1], first_seen) AS message
    FROM drift
    WHERE drift = 'breaking' AND calls > 0
    GROUP BY server
),
-- Servers whose starts fail with the same last words form one row, as does all noise on stdout.
lives AS (
    SELECT
        kind, list(server ORDER BY affected DESC, server) AS servers, cause,
        sum(affected)::BIGINT AS affected, sum(total)::BIGINT AS total,
        sum(probed)::BIGINT AS probed, sum(affected * coalesce(weighted / sessions, 1)) AS lost,
        arg_max(message, (affected, server)) AS message, min(first_seen) AS first_seen,
        max(last_seen) AS last_seen, method, min(call_id) AS call_id, fault
    FROM _server_problems
    LEFT JOIN server_counts ON server_hash = hash(server)
    GROUP BY kind, cause, method, fault, CASE kind
        WHEN 'noise' THEN ''
        WHEN 'crash' THEN server
        ELSE coalesce(said, server)
    END
),
problems AS (
    SELECT * FROM failures
    UNION ALL BY NAME
    SELECT
        'contract' AS kind, [b.server] AS servers, b.tools, 'tool' AS fault, affected,
        s.calls, s.ok, affected / s.ok AS rate, most.message AS message, most.call_id AS call_id,
        sqrt(affected) * (0.25 + 0.75 * least(1, affected / s.ok)) AS size
    FROM broken b
    JOIN server_counts s ON server_hash = hash(b.server)
    WHERE s.ok > 0
    UNION ALL BY NAME
    SELECT
        'drift' AS kind, [server] AS servers, tools, 'tool' AS fault, calls AS affected, calls,
        first_seen AS since, first_seen, message, sqrt(calls) AS size
    FROM changed
    UNION ALL BY NAME
    SELECT
        kind, servers, CASE kind WHEN 'not_connected' THEN fault ELSE _start_fault(cause) END AS fault,
        cause AS reason, affected, total AS calls, first_seen,
        last_seen, message, probed, method, call_id,
        -- A failed start or a crash costs as many calls as a session has.
        CASE WHEN kind IN ('start', 'crash') THEN lost ELSE sqrt(affected) END
            * (0.25 + 0.75 * affected / total) AS size
    FROM lives
),
weighed AS (
    SELECT *, size * greatest(CASE WHEN uncertain THEN 0.5 ELSE 0 END, CASE kind
        -- A server that no client ever reaches ranks above any problem of a tool.
        WHEN 'not_started' THEN 1000000 WHEN 'not_connected' THEN 1000000 WHEN 'start' THEN 3 WHEN 'crash' THEN 3
        WHEN 'noise' THEN 0.1
        WHEN 'tool_failures' THEN 1 WHEN 'misconfigured' THEN 1.5 WHEN 'unavailable' THEN 1
        WHEN 'account' THEN 0.8 WHEN 'client' THEN 0.7 WHEN 'unclear' THEN 0.5
        WHEN 'contract' THEN 0.4 WHEN 'unmarked' THEN 0.6 WHEN 'caller' THEN 0.15 ELSE 0.05
    END) AS impact
    FROM problems
)
SELECT
    row_number() OVER (ORDER BY round(impact, 6) DESC, kind, servers, tools, cause) AS rank,
    cause, kind, if(len(servers) = 1, servers[1], NULL) AS server, servers, tools,
    if(len(tools) = 1, tools[1], NULL) AS tool, unlisted, coalesce(unlisted_calls, 0) AS unlisted_calls, fault,
    coalesce(uncertain, false) AS uncertain, suspected, reason, certainty, hidden_certainty,
    affected, hidden AS unmarked, calls, ok, sessions,
    CASE WHEN len(servers) = 1 THEN p.rate END AS rate,
    CASE WHEN len(servers) = 1 THEN p.rate_low END AS rate_low,
    CASE WHEN len(servers) = 1 THEN p.rate_high END AS rate_high, server_rates, invalid_inputs,
    input_path, input_error, coalesce(insufficient_data, false) AS insufficient_data, since,
    coalesce(client_changed, false) AS client_changed, from_start, symptoms,
    coalesce(other_symptoms, false) AS other_symptoms, prominent, first_seen, last_seen,
    templates, template, verdict, message, exception, call_id, probed, method, impact
FROM weighed p
ORDER BY rank
