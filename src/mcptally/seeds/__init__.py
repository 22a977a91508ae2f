"""What the five seed documents ask for: their contracts, scores, tables and normalised errors.

May import verdict, jsonschemas, redaction, rules, tables, messages, wire and errors.

Five folders, one per document, do not import each other:

    inspector/            response-validation-core: the seed scores, scenarios
    redmine/              redmine-response-validation-adr.ja: content blocks, XML, list counts
    ui_probe/             ui-probe-response-structure: envelopes, UI test runs
    validation_logic/     github-mcp-validation-logic: wrapped arguments, normalised errors
    validation_protocol/  mcp-validation-protocol: the `validate` tool, checks of arguments

They share `violation`, `tool_result`, `json_text` and `javascript`. `results` runs the checks of
tool results. Other folders import:

    pipeline/             `stages`
    analytics/            `argument_checks`, `validation_protocol.sql_functions`, `inspector.model`
    evaluation/, library  `inspector.single`, `inspector.model`, `redmine.content`

A check that has two readings offers them as functions `document` and `program`. Nothing in this
folder sets `outcome` or `verdict`.
"""
