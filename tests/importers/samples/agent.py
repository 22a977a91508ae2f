"""An agent of Pydantic AI that calls tools of the sample server.

python agent.py COMMAND…
"""

import asyncio
import os
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from spans import write_spans

write_spans(os.environ["SPANS_CLIENT"], "agent")
CALLS = [
    ("price", {"item": "tea", "count": 3}),
    ("order", {"item": "tea", "count": 30}),
    ("stock", {"item": "boom"}),
    ("stock", {"item": "tea"}),
]


def model(messages, _info):
    """The next call, then an answer."""
    done = sum(isinstance(message, ModelResponse) for message in messages)
    if done < len(CALLS):
        return ModelResponse(parts=[ToolCallPart(*CALLS[done])])
    return ModelResponse(parts=[TextPart("done")])


async def main():
    transport = StdioTransport(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    Agent.instrument_all()
    agent = Agent(FunctionModel(model), toolsets=[MCPToolset(transport)], retries=3)
    async with agent:
        print((await agent.run("go")).output)


asyncio.run(main())
