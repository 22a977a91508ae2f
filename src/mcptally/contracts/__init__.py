"""Contracts that results keep or break: four seed documents', as they read and as they ran.

content, xml, lists    blocks and texts of results                (Redmine)
envelopes, ui_probe    {success, data, error}, test runs          (UI probe)
dry_runs, protocol     the validate tool and its answers          (validation protocol)
given, regular         arguments unwrapped, errors made regular   (validation logic)

A reading is a function of one value, by name `document` or `program`; findings are made from
columns, and a value is read only where a cheap look at its text says that it is worth it. Nothing
here sets `outcome` or `verdict`.
"""
