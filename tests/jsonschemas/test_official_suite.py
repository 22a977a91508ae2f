"""Validation gives the results of the official test suite of JSON Schema."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_specifications import REGISTRY

from mcptally.jsonschemas.dialects import dialect_of, metaschema_errors
from mcptally.jsonschemas.reference_engine import CLASSES
from mcptally.jsonschemas.validators import compile_validator
from tests.jsonschemas.oracle import members

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}

EXCLUDED = {
    "refRemote.json": "documents on a server: never fetched, so such a schema is unusable",
    "vocabulary.json": "needs metaschemas from a server",
    "cross-draft.json": "needs documents from a server",
    "format.json": "formats are annotations and never asserted",
    "id.json": "identifiers of documents of a server",
    "unknownKeyword.json": "identifiers of documents of a server",
}
"""Files of the suite about features that are deliberately not supported, with the reason."""


SUITE = members("jsonschema-4.26.0", "/json/tests/")


def suite(draft: str) -> dict[str, Any]:
    """Return the files of the suite for a draft."""
    return {path: groups for path, groups in SUITE.items() if f"/tests/{draft}/" in path}


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_json_schema_test_suite_passes(draft: str):
    wrong, right, unusable = [], 0, []
    for path, groups in suite(draft).items():
        if "/optional/" in path or Path(path).name in EXCLUDED:
            continue
        for group in groups:
            schema = group["schema"]
            if isinstance(schema, dict) and "$schema" not in schema:
                schema = {"$schema": DRAFTS[draft], **schema}
            judge = compile_validator(json.dumps(schema))
            for test in group["tests"]:
                if isinstance(judge, str):
                    unusable.append((Path(path).name, group["description"], judge))
                    break
                state = judge(test["data"])[0]
                if state == "unusable_schema":
                    unusable.append((Path(path).name, group["description"], "value"))
                elif (state == "valid") != test["valid"]:
                    wrong.append((Path(path).name, group["description"], test["description"]))
                else:
                    right += 1
    assert right > 500
    assert not wrong
    assert {name for name, *_ in unusable} <= UNUSABLE, unusable


UNUSABLE = {
    *("ref.json", "anchor.json", "defs.json", "definitions.json", "dynamicRef.json"),
    *("recursiveRef.json", "unevaluatedItems.json", "unevaluatedProperties.json"),
    "infinite-loop-detection.json",
}
"""Files with schemas that refer to other documents, or to themselves for the same value."""


@pytest.mark.slow
@pytest.mark.parametrize("draft", DRAFTS)
def test_the_compact_metaschema_accepts_what_the_official_one_accepts(draft: str):
    name = dialect_of({"$schema": DRAFTS[draft]})
    cls = CLASSES[name]
    official = cls(cls.META_SCHEMA, registry=REGISTRY)
    schemas = [group["schema"] for groups in suite(draft).values() for group in groups]
    broken = [_with(schema, key, value) for schema in schemas[:50] for key, value in WRONG]
    differ = [
        schema
        for schema in schemas + broken
        if isinstance(schema, dict | bool)
        if (not [w for _, w in _meta(schema, name) if "pattern" not in w])
        != official.is_valid(schema)
    ]
    assert len(schemas) > 150
    assert not differ


WRONG = (
    ("type", "int"),
    ("required", True),
    ("minimum", "1"),
    ("properties", []),
    ("properties", {"a": 3}),
    ("additionalProperties", "no"),
    ("enum", "a"),
    ("allOf", {}),
    ("not", 1),
    ("$ref", 7),
    ("title", 1),
    ("maxLength", -1),
)


def _with(schema: Any, key: str, value: Any) -> Any:
    return {**schema, key: value} if isinstance(schema, dict) else schema


def _meta(schema: Any, name: str) -> list[tuple[str, str]]:
    if isinstance(schema, dict):
        named = next(uri for uri in DRAFTS.values() if dialect_of({"$schema": uri}) == name)
        schema = {**schema, "$schema": named}
    return metaschema_errors(schema)
