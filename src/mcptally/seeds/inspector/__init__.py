"""The seed score in both readings: `inspector_*` is the original program, `seed_*` its document.

`rows` loads the rule rows, `model` has the document's types, `wording` the original's sentences;
`inspector` and `document` are the two readings of one response, and `single` offers both to whom
has one response; `columns` (with `factors`) runs both over a table of calls; `scenario` and
`given` say what a call was a test of, `rollup` sums up tools and servers. What the original's
engine and its schema validator do otherwise than ours is in `javascript` and `ajv`.
"""
