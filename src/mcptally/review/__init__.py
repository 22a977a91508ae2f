"""Stores people's answers about calls, and computes rates from these answers alone.

May import `statistics` and lower layers. Callers pass in the store (`sample.ReviewedStore`).
`answers` owns the file `reviews.jsonl`, `settled` decides which answers count, `apply` applies them
to calls during scoring. `items` finds calls to review, `sample` draws calls at random, `estimates`
computes rates from a sample. The command line, notebooks and the browser use `session`.
"""
