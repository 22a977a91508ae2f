"""The seed score in both readings: `inspector_*` is the original program, `seed_*` its document.

`rows` loads the rule rows; `inspector` and `document` are the two readings of one response, and
`single` offers both to callers with one response; `columns` runs both over a table of calls,
`scenario` says what a call was a test of, `rollup` sums up tools and servers.
"""
