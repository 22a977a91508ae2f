-- The length of periods: the shortest, from a minute to a week, that gives at most 60 of them.
-- Value of: began, ended
coalesce(
    list_filter([
        INTERVAL '1 minute', INTERVAL '5 minutes', INTERVAL '15 minutes', INTERVAL '1 hour',
        INTERVAL '6 hours', INTERVAL '1 day'
    ], lambda length: began + 60 * length > ended)[1],
    INTERVAL '1 week'
)
