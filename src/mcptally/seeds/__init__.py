"""Contracts that results keep or break: four seed documents', as they read and as they ran.

content, xml, lists, error_shapes   blocks and texts of results                (Redmine)
envelopes, ui_probe, ui_tables      {success, data, error}, test runs          (UI probe)
validation, …_texts, validators     the validate tool and its answers          (validation protocol)
schema_phase, semantic, cron        what a dry run of our own says             (validation protocol)
given, regular                      arguments unwrapped, errors made regular   (validation logic)

`results` and `line` say where these stand in the pipeline, `foresight` lends `semantic` to DuckDB.

A reading is a function of one value, by name `document` or `program`; findings are made from
columns, and a value is read only where a cheap look at its text says that it is worth it. Nothing
here sets `outcome` or `verdict`.
"""
