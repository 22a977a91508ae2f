"""What Python servers that are written against one SDK share: the calls planned for each tool.

`@calls(...)` declares the calls of a tool, `also(...)` those of a tool that does not exist. `run`
serves, or prints the plan if the script was started with --plan.
"""

import json
import sys

PLAN = []


def calls(*planned):
    def declare(function):
        also(function.__name__, *planned)
        return function

    return declare


def also(tool, *planned):
    PLAN.extend({"tool": tool, **call} for call in planned)


def run(serve):
    if "--plan" in sys.argv:
        print(json.dumps(PLAN))
    else:
        serve()
