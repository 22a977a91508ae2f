-- How sure a rate is, from what `_moments_of` says of it: n_eff, t, low and high.
-- Value of: m
rate_interval(
    struct_extract(m, 'n'), struct_extract(m, 'y'), struct_extract(m, 'nn'),
    struct_extract(m, 'yy'), struct_extract(m, 'yn'), struct_extract(m, 'sessions'),
    least(struct_extract(m, 'hit'), struct_extract(m, 'missed'))
)
