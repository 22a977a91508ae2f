"""Implements the Redmine document's response contract (redmine-response-validation-adr.ja.md).

Reads tool results: content blocks, XML and list counts in their texts, error forms. Writes findings
(`content.*`). The library's `assert_tool_response` is in `content`.

`content` checks blocks, `xml` XML texts, `expected_xml` where XML is expected, `list_counts`
total_count and limit, `error_phrases` error messages without isError, `error_forms` whether a
server's errors have one form.
"""
