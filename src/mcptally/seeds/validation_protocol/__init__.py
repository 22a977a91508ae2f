"""Implements the validation protocol document (mcp-validation-protocol.md): checks before calls.

Reads calls to a `validate` tool or the method `tools/validate`, and the calls that they validate.
Writes the table `validations`, the columns `validated_by` and `validated_as` of `seed_scores`, and
findings (`validation.*`).

`calls` recognises validations and relates them to calls; `texts` parses their requests and answers.
mcptally's own dry run uses `schema_errors` and `argument_semantics` (with `cron`); `sql_functions`
makes semantic checks available in DuckDB.
"""
