-- Half the width of the 95 % interval of a mean of `n` values, with sessions as clusters.
-- Value of: sessions, n, squares
-- `squares`: the sum over sessions of (the sum of the session's deviations from the mean), squared.
CASE WHEN sessions > 1 THEN
    t_quantile(0.975, sessions - 1) * sqrt(sessions / (sessions - 1) * squares) / n
END
