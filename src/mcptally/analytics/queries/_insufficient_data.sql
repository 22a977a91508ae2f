-- Whether there is too little data for a statement about a rate.
-- Value of: n_eff, low, high
coalesce(n_eff < 10 OR high - low > 0.4, true)
