"""Implements the five seed documents: their contracts, scores, tables and normalised errors.

May import verdict, jsonschemas, redaction, rules, tables, messages, wire and errors.

The five folders, one per document, do not import each other:

    inspector/            response-validation-core: the seed scores, scenarios
    redmine/              redmine-response-validation-adr.ja: content blocks, XML, list counts
    ui_probe/             ui-probe-response-structure: envelopes, UI test runs
    validation_logic/     github-mcp-validation-logic: wrapped arguments, normalised errors
    validation_protocol/  mcp-validation-protocol: the `validate` tool, checks of arguments

They share `violation`, `tool_result` and `javascript`. `results` runs the checks on tool results;
`stages` runs all checks on a partition or on the archive.

A check may have two interpretations: the function `document` follows the document's text, the
function `program` the program that the document describes. Nothing in this folder sets `outcome` or
`verdict`.
"""
