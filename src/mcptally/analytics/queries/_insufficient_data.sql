-- Whether there is too little data for a statement about a rate, given its interval.
-- Value of: rate
coalesce(
    struct_extract(rate, 'n_eff') < 10
        OR struct_extract(rate, 'high') - struct_extract(rate, 'low') > 0.4,
    true
)
