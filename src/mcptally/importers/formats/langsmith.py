"""Reads LangSmith runs, as returned by `Client.list_runs`, its API and LangChain's tracer.

{"id":"…","run_type":"tool","name":"search","inputs":{…},"outputs":{"output":…},"error":null,
 "start_time":"…","end_time":"…","trace_id":"…"}
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from mcptally.importers.items import Item
from mcptally.importers.source import Source
from mcptally.importers.tool_records import Node, ToolRecord, read_records
from mcptally.importers.values import dict_of, parsed, text_of, unwrapped

_TRACEBACK: Final = re.compile(
    r"\A\w+\((?P<quote>['\"])(?P<said>.*?)(?P=quote)\)Traceback", re.DOTALL
)


def read(source: Source) -> Iterator[Item]:
    """Yield the calls among the runs."""
    return read_records(source, _record, "a run that is not of a tool", _node)


def _node(run: dict[str, Any]) -> Node:
    model = dict_of(dict_of(run.get("extra")).get("metadata")).get("ls_model_name")
    return Node(
        str(run.get("id")),
        text_of(run.get("parent_run_id")) or text_of(run.get("trace_id")),
        text_of(model) if run.get("run_type") == "llm" else None,
    )


def _record(run: dict[str, Any]) -> ToolRecord | None:
    if run.get("run_type") != "tool":
        return None
    inputs, outputs = parsed(run.get("inputs")), dict_of(run.get("outputs"))
    if isinstance(inputs, dict) and inputs.keys() == {"input"}:
        inputs = inputs["input"]  # some versions store the arguments as a single text
    result, failed = unwrapped(outputs.get("output", outputs or None))
    error = text_of(run.get("error"))
    if error and (match := _TRACEBACK.match(error)):
        error = match["said"]
    ended = run.get("end_time") is not None
    metadata = dict_of(dict_of(run.get("extra")).get("metadata"))
    session = metadata.get("thread_id") or metadata.get("session_id") or run.get("trace_id")
    return ToolRecord(
        id=str(run.get("id")),
        tool=text_of(run.get("name")),
        session=str(session or ""),
        start=run.get("start_time"),
        end=run.get("end_time"),
        arguments=inputs,
        result=result,
        is_error=bool(error) or failed if ended else None,
        error=error,
    )
