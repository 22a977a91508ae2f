-- The change in every metric for every tool and server, and whether chance can explain it.
WITH metrics AS (SELECT unnest($metrics, recursive := true)),
sums AS MATERIALIZED (
    SELECT 'base' AS side, s.* EXCLUDE (level, tool), p.new_tool AS tool
    FROM base._session_metrics s
    JOIN pairs p ON p.server IS NOT DISTINCT FROM s.server AND p.base_tool = s.tool
    WHERE level = 'tool' AND presence IN ('both', 'renamed')
    UNION ALL
    SELECT 'new', s.* EXCLUDE (level, tool), p.new_tool
    FROM new._session_metrics s
    JOIN pairs p ON p.server IS NOT DISTINCT FROM s.server AND p.new_tool = s.tool
    WHERE level = 'tool' AND presence IN ('both', 'renamed')
),
-- Latency relative to the session's other calls, because a slow session slows all of its tools.
relative_latencies AS (
    SELECT
        side, server, tool, session, n, y - n * mean_latency AS residual,
        sum(y - n * mean_latency) OVER (PARTITION BY side, server, session) - residual
            AS others_residual,
        sum(n) OVER (PARTITION BY side, server, session) - n AS others
    FROM (
        SELECT *, sum(y) OVER (PARTITION BY server, tool)
            / sum(n) OVER (PARTITION BY server, tool) AS mean_latency
        FROM sums
        WHERE metric = 'ln_latency_ms'
    )
),
logs AS MATERIALIZED (
    SELECT side, server, tool, metric, session, n, y FROM sums WHERE metric LIKE 'ln\_%' ESCAPE '\'
    UNION ALL
    SELECT side, server, tool, 'ln_latency_vs_session', session, n,
        residual - n * others_residual / (others + 2)
    FROM relative_latencies
),
-- The jackknife variance over sessions. The degrees of freedom follow from the effective number of
-- sessions, because sessions differ greatly in size.
log_rates AS (
    SELECT
        t.side, t.server, t.tool, t.metric, false AS share, t.n, t.y, sessions,
        0 AS hit, 0 AS missed,
        t.mean,
        sum(((l.y - t.mean * l.n) / t.n / nullif(1 - l.n / t.n, 0)) ** 2) AS variance,
        greatest(1, 1 / sum((l.n / t.n) ** 2) - 1) AS df
    FROM logs l
    JOIN (
        SELECT side, server, tool, metric, sum(n) AS n, sum(y) AS y, count(*) AS sessions,
            sum(y) / sum(n) AS mean
        FROM logs
        GROUP BY ALL
    ) t
        ON t.side = l.side AND t.server IS NOT DISTINCT FROM l.server AND t.tool = l.tool
        AND t.metric = l.metric
    GROUP BY ALL
),
rates AS MATERIALIZED (
    SELECT 'base' AS side, true AS share, r.* EXCLUDE (level, tool), p.new_tool AS tool
    FROM base._rates r
    JOIN pairs p ON p.server IS NOT DISTINCT FROM r.server AND p.base_tool = r.tool
    WHERE level = 'tool' AND presence IN ('both', 'renamed')
    UNION ALL BY NAME
    SELECT 'new' AS side, true AS share, r.* EXCLUDE (level, tool), p.new_tool AS tool
    FROM new._rates r
    JOIN pairs p ON p.server IS NOT DISTINCT FROM r.server AND p.new_tool = r.tool
    WHERE level = 'tool' AND presence IN ('both', 'renamed')
    UNION ALL BY NAME
    SELECT * FROM log_rates
),
session_lists AS (
    SELECT side, server, tool, metric, list(y) AS hits, list(n) AS sizes
    FROM sums
    WHERE metric NOT LIKE 'ln\_%' ESCAPE '\'
    GROUP BY ALL
),
-- Both sides of every tool.
tools AS (
    SELECT
        'tool' AS level, p.server, p.base_tool, p.new_tool, b.metric, b.share, m.family, m.weight,
        b.n AS base_n, n.n AS new_n, b.sessions AS base_sessions, n.sessions AS new_sessions,
        b.mean AS base, b.variance AS base_variance, n.mean AS new, n.variance AS new_variance,
        (b.y + n.y) / (b.n + n.n) AS pooled,
        -- The p-value and the interval of the difference; null for a metric that is not a rate.
        rate_change(bs.hits, bs.sizes, ns.hits, ns.sizes) AS rate_change,
        b.variance AS base_null, n.variance AS new_null, b.df AS base_df, n.df AS new_df,
        1.0 AS common_share,
        -- A test needs enough events and, for times, enough calls in sessions of similar size.
        if(b.share, least(b.y + n.y, b.n + n.n - b.y - n.y) >= $min_events
            AND least(b.hit + n.hit, b.missed + n.missed) >= $min_event_sessions,
            least(b.n, n.n) >= 2 * $min_calls AND least(b.df, n.df) >= $min_sessions - 1)
            AS has_events
    FROM pairs p
    JOIN rates b
        ON b.side = 'base' AND b.server IS NOT DISTINCT FROM p.server AND b.tool = p.new_tool
    JOIN rates n
        ON n.side = 'new' AND n.server IS NOT DISTINCT FROM p.server AND n.tool = p.new_tool
        AND n.metric = b.metric
    JOIN metrics m ON m.metric = b.metric
    LEFT JOIN session_lists bs
        ON bs.side = 'base' AND bs.server IS NOT DISTINCT FROM p.server AND bs.tool = p.new_tool
        AND bs.metric = b.metric
    LEFT JOIN session_lists ns
        ON ns.side = 'new' AND ns.server IS NOT DISTINCT FROM p.server AND ns.tool = p.new_tool
        AND ns.metric = b.metric
),
-- Servers, standardised: each tool has its weight in both archives together, so that a different
-- mix of calls is not a change.
weighted_tools AS MATERIALIZED (
    SELECT
        server, base_tool, new_tool, metric, share, base, new, pooled, base_n, new_n,
        (base_n + new_n) / sum(base_n + new_n) OVER (PARTITION BY server, metric) AS w
    FROM tools
    WHERE metric <> 'ln_latency_vs_session'
),
session_residuals AS (
    SELECT
        s.side, s.server, s.metric, s.session,
        sum(w * (s.y - if(side = 'base', base, new) * s.n)
            / if(side = 'base', base_n, new_n)) AS u,
        sum(w * (s.y - pooled * s.n) / if(side = 'base', base_n, new_n)) AS v
    FROM sums s
    JOIN weighted_tools w
        ON w.server IS NOT DISTINCT FROM s.server AND w.new_tool = s.tool AND w.metric = s.metric
    GROUP BY ALL
),
session_spread AS (
    SELECT
        server, metric,
        count(*) FILTER (side = 'base') AS bg, count(*) FILTER (side = 'new') AS ng,
        sum(u ** 2) FILTER (side = 'base') * bg / nullif(bg - 1, 0) AS base_variance,
        sum(u ** 2) FILTER (side = 'new') * ng / nullif(ng - 1, 0) AS new_variance,
        var_samp(v) FILTER (side = 'base') * bg AS base_null,
        var_samp(v) FILTER (side = 'new') * ng AS new_null
    FROM session_residuals
    GROUP BY ALL
),
totals AS (
    SELECT server, metric, sum(n) FILTER (side = 'base') AS bn, sum(n) FILTER (side = 'new') AS nn
    FROM (
        SELECT 'base' AS side, * FROM base._session_metrics WHERE level = 'server'
        UNION ALL
        SELECT 'new', * FROM new._session_metrics WHERE level = 'server'
    )
    GROUP BY ALL
),
standardised AS (
    SELECT
        server, metric, share, sum(base_n) AS base_n, sum(new_n) AS new_n,
        -- Unlike sum(w * base), this is exactly 1 if every call to every tool succeeded.
        sum((base_n + new_n) * base) / sum(base_n + new_n) AS base,
        sum((base_n + new_n) * new) / sum(base_n + new_n) AS new,
        sum(if(share, w ** 2 * pooled * (1 - pooled) / base_n, 0)) AS base_floor,
        sum(if(share, w ** 2 * pooled * (1 - pooled) / new_n, 0)) AS new_floor
    FROM weighted_tools
    GROUP BY ALL
),
server_sides AS (
    SELECT
        s.*, bg, ng, base_variance, new_variance,
        greatest(base_null, base_floor) AS base_null, greatest(new_null, new_floor) AS new_null,
        (base_n + new_n) / (bn + nn) AS common_share,
        CASE WHEN base IN (0, 1) THEN bg
            ELSE base * (1 - base) / greatest(base_variance, base_floor) END AS base_eff,
        CASE WHEN new IN (0, 1) THEN ng
            ELSE new * (1 - new) / greatest(new_variance, new_floor) END AS new_eff,
        t_quantile(0.975, bg - 1) AS bt, t_quantile(0.975, ng - 1) AS nt
    FROM standardised s
    JOIN session_spread d ON d.server IS NOT DISTINCT FROM s.server AND d.metric = s.metric
    JOIN totals t ON t.server IS NOT DISTINCT FROM s.server AND t.metric = s.metric
),
servers AS (
    SELECT
        'server' AS level, server, NULL::VARCHAR AS base_tool, NULL::VARCHAR AS new_tool,
        metric, share, family, weight, base_n, new_n, bg AS base_sessions, ng AS new_sessions,
        base, base_variance, new, new_variance, base_eff, new_eff, bt, nt, base_null, new_null,
        bg - 1 AS base_df, ng - 1 AS new_df, common_share,
        NOT share OR base + new NOT IN (0, 2) AS has_events
    FROM server_sides
    JOIN metrics USING (metric)
),
sides AS (
    SELECT
        *,
        if(share, wilson_low(base, base_eff, bt), NULL) AS base_low,
        if(share, wilson_high(base, base_eff, bt), NULL) AS base_high,
        if(share, wilson_low(new, new_eff, nt), NULL) AS new_low,
        if(share, wilson_high(new, new_eff, nt), NULL) AS new_high
    FROM (
        SELECT * EXCLUDE pooled FROM tools
        UNION ALL BY NAME
        SELECT * FROM servers
    )
),
tested AS (
    SELECT
        *,
        least(base_sessions, new_sessions) >= $min_sessions
            AND least(base_n, new_n) >= $min_calls AS testable,
        new - base AS difference,
        -- Degrees of freedom of Welch and Satterthwaite.
        (base_null + new_null) ** 2
            / nullif(base_null ** 2 / base_df + new_null ** 2 / new_df, 0) AS df_null,
        (base_variance + new_variance) ** 2
            / nullif(base_variance ** 2 / base_df + new_variance ** 2 / new_df, 0) AS df,
        t_quantile(0.975, df) * sqrt(base_variance + new_variance) AS half_width,
        if(testable AND has_events, if(new = base, 1, coalesce(rate_change[1],
            t_test((new - base) / nullif(sqrt(base_null + new_null), 0), df_null), 1)), NULL)
            AS p_value
    FROM sides
),
-- The q-value (Benjamini and Hochberg) limits the share of reported changes that are due to chance.
-- Within a family, each metric has a weight (Genovese, Roeder and Wasserman).
weighted AS (
    SELECT *, p_value * count(p_value) OVER (PARTITION BY level, metric) / weight AS weighted_p
    FROM tested
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY level, family ORDER BY weighted_p NULLS LAST) AS p_rank
    FROM weighted
),
judged AS (
    SELECT
        -- If the other tools got faster, a tool looks slow, so its own latency must change as well.
        metric <> 'ln_latency_vs_session' OR difference * coalesce(any_value(difference)
            FILTER (metric = 'ln_latency_ms') OVER (PARTITION BY level, server, new_tool), 0)
            >= ln($min_ratio) ** 2 AS latency_agrees,
        * EXCLUDE (base, new),
        CASE WHEN p_value IS NOT NULL THEN least(1, min(weighted_p / p_rank) OVER (
            PARTITION BY level, family ORDER BY p_rank DESC ROWS UNBOUNDED PRECEDING)) END
            AS q_value,
        if(share, base, exp(base)) AS base, if(share, new, exp(new)) AS new,
        if(share, difference, exp(difference)) AS change,
        -- Rates: Newcombe's difference of two Wilson intervals. Others: a difference of logarithms.
        -- The interval of a tool weights sessions by their information, and the difference weights
        -- calls equally. If it is outside, because long sessions are different, the interval grows.
        if(share, least(difference, coalesce(rate_change[2],
            difference - sqrt((new - new_low) ** 2 + (base_high - base) ** 2))),
            exp(difference - half_width)) AS change_low,
        if(share, greatest(difference, coalesce(rate_change[3],
            difference + sqrt((new_high - new) ** 2 + (base - base_low) ** 2))),
            exp(difference + half_width)) AS change_high,
        if(share, $min_difference, ln($min_ratio)) AS min_change,
        if(share, 0, 1) AS no_change,
        list_contains($higher_is_better, metric) AS higher_is_better,
        -- As in scores, `confidence` ranges from 0 to 100.
        if(metric = 'confidence', 100, 1) AS unit
    FROM ranked
)
SELECT
    level, server, coalesce(new_tool, base_tool) AS tool, base_tool,
    replace(metric, 'ln_', '') AS metric,
    if(share, 'difference', 'ratio') AS scale,
    unit * base AS base, unit * new AS new, unit * change AS change,
    unit * change_low AS change_low, unit * change_high AS change_high, p_value, q_value,
    CASE
        WHEN NOT testable THEN 'too_little_data'
        WHEN q_value <= $alpha AND latency_agrees AND difference >= min_change
            AND j.change_low > no_change THEN if(higher_is_better, 'better', 'worse')
        WHEN q_value <= $alpha AND latency_agrees AND difference <= -min_change
            AND j.change_high < no_change THEN if(higher_is_better, 'worse', 'better')
        WHEN share AND greatest(j.change_high, -j.change_low) < min_change THEN 'unchanged'
        WHEN NOT share AND greatest(ln(j.change_high), -ln(j.change_low)) < min_change
            THEN 'unchanged'
        ELSE 'unclear'
    END AS verdict,
    base_n::BIGINT AS base_calls, new_n::BIGINT AS new_calls, base_sessions, new_sessions,
    common_share AS calls_of_common_tools
FROM judged j
