-- How well the verdict separates tool failures from business errors, counted on labelled errors.
-- Source: mcptally evaluate on 420 labelled errors, 2026-11-21; rows with one of the two verdicts.
SELECT
    76 AS labelled_failures, 58 AS called_failures,
    344 AS labelled_others, 340 AS called_others
