-- A time in UTC, to the minute.
-- Value of: moment
coalesce(strftime(moment AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M') || ' UTC', 'an unknown time')
