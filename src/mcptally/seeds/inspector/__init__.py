"""Implements the seed score of response-validation-core.md, and scenarios.

Reads calls with their responses and the tools' schemas. Writes the `seed_*` columns (the document
as written), the `inspector_*` columns (the original program) and `scenario`, `scenario_source`.

`model` declares the document's types, `rows` the rule rows, `wording` the program's sentences.
`document` and `inspector` implement the two interpretations of one response, `single` offers both
to library users. `columns` (with `regular_replies`, `score_columns` and `factors`) scores a table
of calls. `scenario` (with `boundaries` and `scenario_file`) determines what a call tested,
`scenario_engine` computes a tool's status. `ajv/` reproduces the program's schema validator.
"""
