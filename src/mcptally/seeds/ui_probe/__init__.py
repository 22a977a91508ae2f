"""Implements the UI probe document (ui-probe-response-structure.md): envelopes, UI test runs.

Reads JSON objects in tool results. Writes the tables `ui_runs`, `ui_steps`, `ui_errors`, and
findings (`envelope.*`, `ui_probe.*`).

`shapes` compares a value with a shape. `envelopes` checks {success, data, error}, `tool_data`
checks the data of the simple tools, `test_runs` checks test runs, and `form_confidence` checks
uncertain forms. `tables` makes the tables.
"""
