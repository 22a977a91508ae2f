"""Keeps what people say about calls, and computes rates from it that do not rely on the verdict.

May import `statistics` and the folders below it; a store is passed in (`items.ReviewedStore`).
`answers` owns the file `reviews.jsonl`, `settled` decides which answers count, `apply` puts them on
calls while an archive is scored. `items` finds what to look at, `sample` draws calls at random,
`estimates` computes rates from a sample, and `session` is what the command line, notebooks and the
browser call.
"""
