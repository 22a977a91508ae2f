-- The interval of a rate (n_eff, t, low, high) from its `_moments`.
-- Value of: m
rate_interval(
    struct_extract(m, 'n'), struct_extract(m, 'y'), struct_extract(m, 'nn'),
    struct_extract(m, 'yy'), struct_extract(m, 'yn'), struct_extract(m, 'mixed'),
    struct_extract(m, 'sessions'), least(struct_extract(m, 'hit'), struct_extract(m, 'missed')),
    NULL, NULL
)
