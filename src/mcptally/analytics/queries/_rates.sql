-- Means and shares with sessions as clusters, per tool and per server (level), and metric.
FROM _rates_of('tool') UNION ALL FROM _rates_of('server')
