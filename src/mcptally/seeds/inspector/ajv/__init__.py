"""Reproduces AJV 6.12.6: its decisions about output schemas, and its error messages.

`schemas` compiles a schema and judges values, `messages` writes AJV's sentences, `patterns`
translates regular expressions. May import jsonschemas/ and `seeds.javascript`.
"""
