"""Stores people's answers about calls, and computes rates only from the answers.

May import `statistics` and lower layers; a store is passed in (`items.ReviewedStore`).
`answers` owns the file `reviews.jsonl`, `settled` decides which answers count, `apply` applies them
to calls during scoring. `items` finds calls to review, `sample` draws calls at random, `estimates`
computes rates from a sample, and the command line, notebooks and the browser use `session`.
"""
