"""Reproduces AJV 6.12.6: which output schemas the Inspector's validator accepts, and its errors.

`schemas` compiles a schema and judges values, `messages` writes AJV's sentences, `patterns`
translates regular expressions. May import jsonschemas/ and `seeds.javascript`.
"""
