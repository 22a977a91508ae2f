-- Rates and means with intervals, per tool and per server (`level`) and metric.
FROM _rates_per('tool') UNION ALL FROM _rates_per('server')
