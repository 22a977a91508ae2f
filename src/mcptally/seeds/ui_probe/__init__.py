"""Implements the UI probe document (ui-probe-response-structure.md): envelopes, UI test runs.

Reads JSON objects in tool results. Writes the tables `ui_runs`, `ui_steps`, `ui_errors`, and
findings (`envelope.*`, `ui_probe.*`).

`shapes` compares a value with a shape, `envelopes` checks {success, data, error}, `tool_data` the
data of the simple tools, `test_runs` test runs, `form_confidence` uncertain forms; `tables` writes
the tables.
"""
