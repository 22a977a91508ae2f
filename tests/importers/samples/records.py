"""Makes the samples of LangSmith, Langfuse and LiteLLM with their own libraries.

python records.py      writes langsmith.jsonl, langfuse.json and litellm.jsonl here. Needs
langchain-core, langfuse and litellm, each of which makes its records without a network.
"""

import datetime
import json
from pathlib import Path

BEGAN = datetime.datetime(2026, 11, 22, 20, tzinfo=datetime.UTC)


def langsmith():
    """The runs that LangChain's tracer would send."""
    from langchain_core.tools import ToolException, tool
    from langchain_core.tracers.base import BaseTracer

    lines = []

    class Tracer(BaseTracer):
        def _persist_run(self, run):
            lines.append(run.model_dump_json() + "\n")

    @tool
    def price(item: str, count: int) -> dict:
        """What an order costs."""
        return {"item": item, "cents": 250 * count}

    @tool
    def order(item: str, count: int) -> str:
        """Place an order."""
        if count > 10:
            raise ToolException("Quantity must be at most 10")
        return f"ordered {count} of {item}"

    config = {"callbacks": [Tracer()]}
    tea = {"item": "tea", "count": 4}
    price.invoke({"item": "tea", "count": 3}, config)
    price.invoke({"name": "price", "args": tea, "id": "call_1", "type": "tool_call"}, config)
    try:
        order.invoke({"item": "tea", "count": 30}, config)
    except ToolException as error:
        print(error)
    Path("langsmith.jsonl").write_text("".join(lines))


def langfuse():
    """A page of observations, by the types of Langfuse's client."""
    from langfuse.api.commons.types.observation_v2 import ObservationV2

    def observation(n, kind, name, **extra):
        start = BEGAN + datetime.timedelta(seconds=n)
        ended = start + datetime.timedelta(milliseconds=250)
        about = {"trace_id": "t1", "project_id": "p", "session_id": "s1", "type": kind}
        made = ObservationV2(
            id=f"o{n}", name=name, start_time=start, end_time=ended, **about, **extra
        )
        return json.loads(made.json(by_alias=True))

    few, many = {"item": "tea", "count": 3}, {"item": "tea", "count": 30}
    failure = {"level": "ERROR", "status_message": "Quantity must be at most 10"}
    page = [
        observation(1, "AGENT", "agent", input="go"),
        observation(2, "TOOL", "price", input={"args": [], "kwargs": few}, output={"cents": 750}),
        observation(3, "TOOL", "order", input=many, **failure),
        observation(4, "GENERATION", "llm", output="done"),
    ]
    Path("langfuse.json").write_text(json.dumps({"data": page, "meta": {}}, indent=1))


def litellm():
    """Standard logging payloads of calls to MCP tools and of a model."""
    from litellm import ModelResponse
    from litellm.litellm_core_utils import litellm_logging
    from mcp.types import CallToolResult, TextContent

    lines = []

    def log(n, tool, arguments, result, error=None, *, mcp=True):
        times = [BEGAN + datetime.timedelta(seconds=n + half) for half in (0, 0.5)]
        logging = litellm_logging.Logging(
            model=f"MCP: {tool}",
            messages=[{"role": "user", "content": ""}],
            stream=False,
            call_type="call_mcp_tool" if mcp else "acompletion",
            start_time=BEGAN,
            litellm_call_id=f"call-{n}",
            function_id="1",
        )
        call = {"name": tool, "arguments": arguments, "mcp_server_name": "orders"}
        details = {"mcp_tool_call_metadata": call if mcp else None, "call_type": logging.call_type}
        details |= {"litellm_call_id": f"call-{n}", "litellm_params": {"metadata": {}}}
        payload = litellm_logging.get_standard_logging_object_payload(
            {**logging.model_call_details, **details},
            result,
            *times,
            logging,
            "failure" if error else "success",
            error,
            Exception(error) if error else None,
        )
        lines.append(json.dumps(payload, default=str) + "\n")

    def said(text, *, failed=False):
        return CallToolResult(content=[TextContent(type="text", text=text)], isError=failed)

    refusal = said("Quantity must be at most 10", failed=True)
    log(1, "price", {"item": "tea", "count": 3}, said('{"cents":750}'))
    log(2, "order", {"item": "tea", "count": 30}, refusal)
    log(3, "stock", {"item": "boom"}, None, "connection refused: warehouse:5432")
    log(4, "gpt", {}, ModelResponse(), mcp=False)
    Path("litellm.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    langsmith()
    langfuse()
    litellm()
