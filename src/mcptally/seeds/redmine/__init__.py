"""The response contract of the Redmine document (redmine-response-validation-adr.ja.md).

Reads tool results: content blocks, XML and lists with counts in their texts, the forms of errors.
Writes findings (`content.*`). The library's `assert_tool_response` is in `content`.

`content` checks blocks, `xml` XML texts, `expected_xml` where XML is expected, `list_counts`
total_count and limit, `error_phrases` error messages without isError, `error_forms` whether a
server's errors have one form.
"""
