-- The interval (low, high) of a rate if some calls may be hits.
-- Value of: certain, possible
-- `certain` is the `_interval` without these calls, `possible` the one with all of them as hits.
-- Without other calls, the rate can be anything.
CASE WHEN struct_extract(certain, 'low') IS NOT NULL THEN {
    low: least(struct_extract(certain, 'low'), struct_extract(possible, 'low')),
    high: greatest(struct_extract(certain, 'high'), struct_extract(possible, 'high'))
} WHEN struct_extract(possible, 'low') IS NOT NULL THEN {low: 0, high: 1} END
