"""A log of Inspect AI with calls to the sample server's tools.

python evaluation.py COMMAND…
"""

import sys

import inspect_ai
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import mcp_server_stdio

CALLS = [
    ("price", {"item": "tea", "count": 3}),
    ("order", {"item": "tea", "count": 30}),
    ("stock", {"item": "boom"}),
    ("stock", {"item": "tea"}),
]
MODEL = "mockllm/model"

server = mcp_server_stdio(name="orders", command=sys.argv[1], args=sys.argv[2:])
outputs = [ModelOutput.for_tool_call(MODEL, tool, arguments) for tool, arguments in CALLS]
outputs.append(ModelOutput.from_content(MODEL, "done"))
for output in outputs:  # otherwise a tokenizer is downloaded
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
sample = Sample(input="go", target="done")
task = inspect_ai.Task(dataset=[sample], solver=[use_tools(server), generate()], name="shop")
model = get_model(MODEL, custom_outputs=outputs)
inspect_ai.eval(task, model=model, log_dir="inspect", log_format="json")
