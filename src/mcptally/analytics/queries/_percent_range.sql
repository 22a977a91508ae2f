-- The range between two shares, with one percent sign.
-- Value of: low_share, high_share
rtrim(_percent(round(low_share, 4)), '%') || '–' || _percent(round(high_share, 4))
