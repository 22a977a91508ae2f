"""Implements the Redmine document's response contract (redmine-response-validation-adr.ja.md).

Reads tool results: content blocks, XML and list counts in text, error forms. Writes findings
(`content.*`). The library's `assert_tool_response` is in `content`.

`content` checks blocks, `xml` checks XML, `expected_xml` decides where XML is expected,
`list_counts` checks total_count and limit, `error_phrases` finds error messages without isError,
and `error_forms` finds servers with several forms of errors.
"""
