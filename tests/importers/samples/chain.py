"""Tools of LangChain with the instrumentation of OpenInference."""

import os

from langchain_core.tools import ToolException, tool
from openinference.instrumentation.langchain import LangChainInstrumentor
from spans import write_spans

write_spans(os.environ["SPANS_CLIENT"], "agent")
LangChainInstrumentor().instrument()


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


price.invoke({"item": "tea", "count": 3})
price.invoke(
    {"name": "price", "args": {"item": "tea", "count": 4}, "id": "call_1", "type": "tool_call"}
)
for count in (3, 30):
    try:
        order.invoke({"item": "tea", "count": count})
    except ToolException as error:
        print(error)
