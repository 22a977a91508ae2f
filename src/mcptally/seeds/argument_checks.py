"""Exports the functions of seeds/ that analytics/ uses for a dry run of a call's arguments.

`schema_remarks` checks arguments against the tool's schema, `semantic_remarks` checks their
meaning. `unwrapped` and `judgeable` prepare them, `canonical` compares them.
"""

from mcptally.seeds.javascript import judgeable
from mcptally.seeds.validation_logic.arguments import unwrapped
from mcptally.seeds.validation_protocol.argument_semantics import (
    Remark,
    semantic_parameters,
    semantic_remarks,
    tables_in_sql,
)
from mcptally.seeds.validation_protocol.schema_errors import schema_remarks
from mcptally.seeds.validation_protocol.texts import canonical
from mcptally.seeds.violation import pointer

__all__ = [
    "Remark",
    "canonical",
    "judgeable",
    "pointer",
    "schema_remarks",
    "semantic_parameters",
    "semantic_remarks",
    "tables_in_sql",
    "unwrapped",
]
