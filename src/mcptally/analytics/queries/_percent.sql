-- A share as a percentage. Only 0 and 1 become 0% and 100%; other shares keep enough digits.
-- Value of: share
CASE
    WHEN share IS NULL THEN '–'
    WHEN share IN (0, 1) THEN format('{:.0f}%', 100 * share)
    WHEN least(share, 1 - share) >= 0.1 THEN format('{:.0f}%', 100 * share)
    WHEN least(share, 1 - share) >= 0.001 THEN format('{:.1f}%', 100 * share)
    ELSE replace(replace(format('{:.2f}%', 100 * share), '100.00%', '>99.99%'), '0.00%', '<0.01%')
END
