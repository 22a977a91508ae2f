-- How well the verdict tells tool failures from business errors, counted on labelled errors.
-- From: mcptally evaluate ../shared/labels/errors.jsonl, 2026-11-21, rows that got one of the two.
SELECT
    76 AS labelled_failures, 58 AS called_failures,
    344 AS labelled_others, 340 AS called_others
