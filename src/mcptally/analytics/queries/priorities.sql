-- Which problems matter most: what is wrong, whose fault, how many calls, and since when?
-- Shows: rank, server, tool, what, fault, affected, since, message, call_id
-- NOTE 2026-11-24: the lead is rewriting this question, output/html/priorities.py and output/overview (grouping
-- by server and cause, facts without English). Do not edit these files; leave their share of 38.3 to that change.
-- One row per tool or server. `impact` is the lower bound of the number of affected calls times the
-- weight of the kind; the bound is low where there is little data. The fourth and further rows of a
-- kind come after the first three of every kind, so that one kind does not hide the others.
WITH weights AS (
    SELECT unnest(map_entries(MAP {
        'failing': 1, 'change': 1, 'lost': 1, 'hidden': 0.5, 'contract': 0.5, 'never': 0.25,
        'retries': 0.25, 'drift': 0.05
    })) AS entry
),
of_tools AS MATERIALIZED (
    SELECT
        server, tool, calls, ok, sessions, tool_failures, infrastructure, business, hidden_errors,
        success_rate, success_rate_low, success_rate_high, success_rate_insufficient_data,
        failure_rate, failure_rate_low, failure_rate_high, failure_rate_insufficient_data,
        hidden_error_rate, hidden_error_rate_low, hidden_error_rate_high,
        invalid_output_rate, invalid_output_rate_low, invalid_output_rate_high,
        retry_rate, retry_rate_low, retry_rate_high
    FROM tool_scores
),
of_servers AS MATERIALIZED (
    SELECT
        server, calls, ok, sessions, tool_failures, infrastructure,
        failure_rate, failure_rate_low, failure_rate_high, failure_rate_insufficient_data,
        infrastructure_rate, infrastructure_rate_low, infrastructure_rate_high
    FROM server_scores
),
errors AS MATERIALIZED (
    SELECT
        server, tool, template, verdict, calls, certainty, coalesce(example, template) AS example,
        call_id
    FROM error_groups
),
-- The most frequent error message of each verdict, with how certain these verdicts are.
typical AS MATERIALIZED (
    SELECT
        server, tool, verdict, sum(calls) AS n, sum(calls * certainty) / n AS certainty,
        first({message: example, call_id: call_id} ORDER BY calls DESC, template) AS most
    FROM errors
    GROUP BY server, tool, verdict
),
typical_of_tool AS MATERIALIZED (
    SELECT
        server, tool,
        first({verdict: verdict, certainty: certainty, most: most} ORDER BY n DESC, verdict) AS first
    FROM typical
    GROUP BY server, tool
),
typical_of_server AS (
    SELECT
        server, verdict, sum(calls * certainty) / sum(calls) AS certainty,
        first({message: example, call_id: call_id} ORDER BY calls DESC, tool, template) AS most
    FROM errors
    GROUP BY server, verdict
),
-- Servers whose tool failures are scattered: no tool has a quarter of them.
scattered AS (
    SELECT server, count(*) AS tools
    FROM of_tools
    WHERE tool_failures > 0
    GROUP BY server
    HAVING 4 * max(tool_failures) < sum(tool_failures)
),
typical_hidden AS (
    SELECT
        server, tool, sum(hidden_errors * hidden_certainty) / sum(hidden_errors) AS certainty,
        first({verdict: verdict, message: example, call_id: call_id}
            ORDER BY hidden_errors DESC, hidden_rule) AS most
    FROM hidden_errors
    GROUP BY server, tool
),
typical_violation AS (
    SELECT
        server, tool, sum(calls) AS broken,
        first({message: example, call_id: call_id} ORDER BY calls DESC, path, error) AS most
    FROM schema_violations
    WHERE side = 'output' AND state IN ('invalid', 'missing_output')
    GROUP BY server, tool
),
-- When calls of each kind of problem were made.
marked AS (
    SELECT server, tool, requested_at, unnest(list_filter([
        if(_is_tool_failure(verdict), 'failing', NULL),
        if(_is_infrastructure(verdict), 'lost', NULL),
        if(outcome = 'hidden_error', 'hidden', NULL),
        if(outcome <> 'ok', 'never', NULL),
        if(output_schema_state IN ('invalid', 'missing_output'), 'contract', NULL),
        if(attempt_why = 'retry', 'retries', NULL)
    ], lambda kind: kind IS NOT NULL)) AS kind
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s'
        AND (outcome <> 'ok' OR attempt_why = 'retry'
            OR output_schema_state IN ('invalid', 'missing_output'))
),
times AS MATERIALIZED (
    SELECT
        server, tool, kind, min(requested_at) AS first_seen, max(requested_at) AS last_seen
    FROM marked
    GROUP BY server, tool, kind
    UNION ALL
    SELECT server, NULL, 'of all tools: ' || kind, min(requested_at), max(requested_at)
    FROM marked
    WHERE kind IN ('failing', 'lost')
    GROUP BY server, kind
),
lasting AS MATERIALIZED (
    SELECT * FROM change_points
    WHERE level = 'tool' AND direction = 'worse' AND next_change IS NULL AND cause <> 'business'
),
problems AS (
    SELECT
        'failing' AS kind, t.server, t.tool, t.calls,
        'caused the failure of ' || format('{:,}', tool_failures) || ' of '
            || _count_of(t.calls, 'call') || '; ' || format('{:,}', ok) || ' worked' AS what,
        'tool_failure' AS verdict, e.certainty, tool_failures AS affected,
        failure_rate_low * t.calls AS affected_low,
        failure_rate AS rate, failure_rate_low AS rate_low, failure_rate_high AS rate_high,
        _percent(failure_rate) || ', 95% interval '
            || _percent_range(failure_rate_low, failure_rate_high) || '; '
            || _count_of(t.calls, 'call') || ' in ' || _count_of(sessions, 'session') AS evidence,
        failure_rate_insufficient_data AS insufficient_data,
        'verdict = ''tool_failure''' AS condition, e.most.message AS message,
        e.most.call_id AS call_id
    FROM of_tools t
    LEFT JOIN typical e ON e.server IS NOT DISTINCT FROM t.server AND e.tool = t.tool
        AND _is_tool_failure(e.verdict)
    WHERE tool_failures > 0 AND failure_rate_low >= 0.01
    UNION ALL
    SELECT
        'failing', s.server, NULL, s.calls,
        'had ' || format('{:,}', s.tool_failures) || ' of ' || _count_of(s.calls, 'call')
            || ' fail because of ' || format('{:,}', scattered.tools)
            || ' tools, none of which has a quarter of the failures; ' || format('{:,}', ok)
            || ' worked',
        'tool_failure', e.certainty, s.tool_failures, failure_rate_low * s.calls,
        failure_rate, failure_rate_low, failure_rate_high,
        _percent(failure_rate) || ', 95% interval '
            || _percent_range(failure_rate_low, failure_rate_high) || '; '
            || _count_of(s.calls, 'call') || ' in ' || _count_of(sessions, 'session'),
        failure_rate_insufficient_data, 'verdict = ''tool_failure''', e.most.message,
        e.most.call_id
    FROM of_servers s
    JOIN scattered ON scattered.server IS NOT DISTINCT FROM s.server
    LEFT JOIN typical_of_server e ON e.server IS NOT DISTINCT FROM s.server
        AND _is_tool_failure(e.verdict)
    WHERE failure_rate >= 0.01
    UNION ALL
    SELECT
        'change', c.server, c.tool, calls_before + calls_after,
        'succeeds in ' || _percent(success_rate_after) || ' of its calls since '
            || _minute(changed_at) || ', and in ' || _percent(success_rate_before) || ' before',
        cause, e.certainty, round(-difference * calls_after), -difference * calls_after,
        1 - success_rate_after, NULL, NULL,
        _count_of(calls_before, 'call') || ' in ' || _count_of(sessions_before, 'session')
            || ' before, ' || _count_of(calls_after, 'call') || ' in '
            || _count_of(sessions_after, 'session') || ' since; q = ' || format('{:.1g}', q_value),
        false, 'verdict = ''' || cause || '''', g.example, c.call_id
    FROM lasting c
    LEFT JOIN typical e ON e.server IS NOT DISTINCT FROM c.server AND e.tool = c.tool
        AND e.verdict = c.cause
    LEFT JOIN errors g ON g.server IS NOT DISTINCT FROM c.server AND g.tool = c.tool
        AND g.verdict = c.cause AND g.template = c.template
    UNION ALL
    SELECT
        'hidden', t.server, t.tool, t.calls,
        'reported a failure in ' || format('{:,}', hidden_errors) || ' of '
            || _count_of(t.calls, 'call') || ' without marking the result as an error',
        -- The missing error mark is the fault of the tool, even if the caller caused the failure.
        'tool_failure', h.certainty, hidden_errors, hidden_error_rate_low * t.calls,
        hidden_error_rate, hidden_error_rate_low, hidden_error_rate_high,
        _percent(hidden_error_rate) || ', 95% interval '
            || _percent_range(hidden_error_rate_low, hidden_error_rate_high) || '; '
            || _count_of(t.calls, 'call') || ' in ' || _count_of(sessions, 'session')
            || '; cause of most of these failures: ' || _whose_fault(h.most.verdict),
        hidden_error_rate_high - hidden_error_rate_low > 0.4,
        'outcome = ''hidden_error''', h.most.message, h.most.call_id
    FROM of_tools t
    LEFT JOIN typical_hidden h ON h.server IS NOT DISTINCT FROM t.server AND h.tool = t.tool
    WHERE t.hidden_errors > 0 AND hidden_error_rate_low >= 0.01
    UNION ALL
    SELECT
        'lost', s.server, NULL, s.calls,
        'had ' || format('{:,}', infrastructure) || ' of ' || _count_of(s.calls, 'call')
            || ' fail because of the network, a timeout or an upstream service; '
            || format('{:,}', ok) || ' worked',
        'infrastructure', e.certainty, infrastructure, infrastructure_rate_low * s.calls,
        infrastructure_rate, infrastructure_rate_low, infrastructure_rate_high,
        _percent(infrastructure_rate) || ', 95% interval '
            || _percent_range(infrastructure_rate_low, infrastructure_rate_high) || '; '
            || _count_of(s.calls, 'call') || ' in ' || _count_of(sessions, 'session'),
        infrastructure_rate_high - infrastructure_rate_low > 0.4,
        'verdict = ''infrastructure''', e.most.message, e.most.call_id
    FROM of_servers s
    LEFT JOIN typical_of_server e ON e.server IS NOT DISTINCT FROM s.server
        AND _is_infrastructure(e.verdict)
    WHERE infrastructure > 0 AND infrastructure_rate_low >= 0.01
    UNION ALL
    SELECT
        'never', t.server, t.tool, t.calls,
        'never worked: 0 of ' || _count_of(t.calls, 'call') || '; ' || format('{:,}', business)
            || ' refused, ' || format('{:,}', infrastructure)
            || ' failed because of network or upstream, ' || format('{:,}', tool_failures)
            || ' because of the tool',
        e.first.verdict, e.first.certainty, t.calls, (1 - success_rate_high) * t.calls,
        1 - success_rate, 1 - success_rate_high, 1 - success_rate_low,
        _percent(success_rate) || ' worked, 95% interval '
            || _percent_range(success_rate_low, success_rate_high) || '; '
            || _count_of(t.calls, 'call') || ' in ' || _count_of(sessions, 'session'),
        success_rate_insufficient_data, 'outcome <> ''ok''', e.first.most.message,
        e.first.most.call_id
    FROM of_tools t
    LEFT JOIN typical_of_tool e ON e.server IS NOT DISTINCT FROM t.server AND e.tool = t.tool
    WHERE ok = 0 AND 1 - success_rate_high >= 0.01
    UNION ALL
    SELECT
        'contract', t.server, t.tool, t.calls,
        'returned ' || _count_of(broken, 'result') || ' that did not match its output schema',
        'tool_failure', NULL, broken, invalid_output_rate_low * ok,
        invalid_output_rate, invalid_output_rate_low, invalid_output_rate_high,
        _percent(invalid_output_rate) || ' of the results that could be checked, 95% interval '
            || _percent_range(invalid_output_rate_low, invalid_output_rate_high),
        invalid_output_rate_high - invalid_output_rate_low > 0.4,
        'output_schema_state IN (''invalid'', ''missing_output'')', v.most.message,
        v.most.call_id
    FROM of_tools t
    JOIN typical_violation v ON v.server IS NOT DISTINCT FROM t.server AND v.tool = t.tool
    WHERE invalid_output_rate_low >= 0.01
    UNION ALL
    SELECT
        'retries', t.server, t.tool, t.calls,
        'was called again ' || _count_of(retries, 'time')
            || ' by its client after the same call had failed, up to '
            || _count_of(longest, 'time') || ' in a row; ' || _percent(recovered_rate)
            || ' of the repeated calls succeeded in the end',
        -- Repeating a call unchanged is the fault of the caller, even of a failure of the server.
        'business', NULL, retries,
        retry_rate_low * t.calls,
        retry_rate, retry_rate_low, retry_rate_high,
        _percent(retry_rate) || ' of its calls are repetitions, 95% interval '
            || _percent_range(retry_rate_low, retry_rate_high) || '; failed attempts took '
            || _count_of(coalesce(wasted_tokens, 0), 'token')
            || '; cause of most of these failures: '
            || _whose_fault(coalesce(r.verdict, e.first.verdict)),
        retry_rate_high - retry_rate_low > 0.4,
        'attempt_why = ''retry''', e.first.most.message, r.call_id
    FROM retry_loops r
    JOIN of_tools t ON t.server IS NOT DISTINCT FROM r.server AND t.tool = r.tool
    LEFT JOIN typical_of_tool e ON e.server IS NOT DISTINCT FROM r.server AND e.tool = r.tool
    WHERE loops > 0 AND retry_rate_low >= 0.01
    UNION ALL
    SELECT
        'drift', server, tool, calls,
        'changed its definition on ' || _minute(first_seen) || ' in a way that breaks callers: '
            || array_to_string(list_transform(changed[:4], lambda c: left(c, 60)), ', '),
        'tool_failure', NULL, calls, calls, NULL, NULL, NULL,
        'tool_failures: ' || format('{:,}', tool_failures_before) || ' of '
            || _count_of(calls_before, 'call') || ' before, ' || format('{:,}', tool_failures)
            || ' of ' || _count_of(calls, 'call') || ' after',
        false, NULL, NULL, NULL
    FROM drift
    WHERE drift = 'breaking'
),
weighed AS MATERIALIZED (
    SELECT
        p.*, greatest(affected_low, if(p.kind = 'drift', 1, 0)) * entry.value AS impact,
        -- A change of the rate dates a problem better than its first call.
        coalesce(c.changed_at, d.first_seen, t.first_seen) AS since, t.last_seen,
        row_number() OVER (
            PARTITION BY p.server, p.tool
            ORDER BY impact DESC, p.kind, p.what
        ) AS place_in_tool
    FROM problems p
    JOIN weights ON entry.key = p.kind
    LEFT JOIN lasting c ON c.server IS NOT DISTINCT FROM p.server AND c.tool = p.tool
        AND (p.kind = 'change' OR c.cause = p.verdict AND p.kind IN ('failing', 'never', 'hidden'))
    LEFT JOIN times t ON t.server IS NOT DISTINCT FROM p.server
        AND t.tool IS NOT DISTINCT FROM p.tool
        AND t.kind = if(p.tool IS NULL AND p.kind IN ('failing', 'lost'),
            'of all tools: ' || p.kind,
            if(p.kind = 'change' AND _is_infrastructure(p.verdict), 'lost',
                if(p.kind = 'change', 'failing', p.kind)))
    LEFT JOIN (
        SELECT server, tool, max(first_seen) AS first_seen FROM drift WHERE drift = 'breaking'
        GROUP BY server, tool
    ) d ON p.kind = 'drift' AND d.server IS NOT DISTINCT FROM p.server AND d.tool = p.tool
),
others AS (
    SELECT server, tool, list(what ORDER BY place_in_tool) AS also
    FROM weighed
    WHERE place_in_tool > 1 AND NOT insufficient_data
    GROUP BY server, tool
),
first_of_tools AS (
    SELECT *, row_number() OVER (
        PARTITION BY kind ORDER BY impact DESC, server, tool
    ) AS place_in_kind
    FROM weighed
    WHERE place_in_tool = 1
)
SELECT
    row_number() OVER (
        ORDER BY place_in_kind > 3, impact DESC, p.server, p.tool
    ) AS rank,
    kind, p.server, p.tool, what, _whose_fault(verdict) AS fault, certainty,
    affected::BIGINT AS affected, affected_low, calls, since, last_seen,
    rate, rate_low, rate_high, insufficient_data, evidence, coalesce(also, []) AS also,
    message, call_id, condition, impact
FROM first_of_tools p
LEFT JOIN others o ON o.server IS NOT DISTINCT FROM p.server AND o.tool IS NOT DISTINCT FROM p.tool
ORDER BY rank
