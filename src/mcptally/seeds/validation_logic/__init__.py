"""Implements the validation-logic document (github-mcp-validation-logic.md): arguments, errors.

Reads the arguments and the errors of calls. Writes the columns `error_category`,
`error_code_name`, `http_equivalent`, `error_retryable`, `error_hint`, `error_details` and
`error_source` of `calls`, and the finding `arguments.wrapped`.

`arguments` unwraps arguments; `structured_error` parses structured errors, `error_categories` loads
the categories, `normalised_error` writes the columns.
"""
