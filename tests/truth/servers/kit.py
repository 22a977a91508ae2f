"""What the Python servers share: how a tool declares its calls and the true cause of each outcome.

A call declares `fails` (the reply is an error), `hides` (the reply is not marked as an error but
reports one) or `works` (an honest answer, whatever it is about).
"""

import os
import typing

TOOLS = []
UPSTREAM = os.environ.get("UPSTREAM", "http://127.0.0.1:9")
"""A web server whose paths fail in known ways (upstream.py)."""
CLOSED_PORT = int(os.environ.get("CLOSED_PORT", "9"))
"""A local port at which nothing listens."""


class Refused(Exception):
    """An error that the author of a tool raises with a text for the caller."""


def fails(cause, **arguments):
    return {"cause": cause, "outcome": "error", "arguments": arguments}


def hides(cause, **arguments):
    return {"cause": cause, "outcome": "hidden", "arguments": arguments}


def works(**arguments):
    return {"cause": None, "outcome": "ok", "arguments": arguments}


def tool(*calls):
    def declare(function):
        TOOLS.append((function, list(calls)))
        return function

    return declare


def plan():
    return [{"tool": function.__name__, **call} for function, calls in TOOLS for call in calls]


def schema(function):
    names = {str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    hints = typing.get_type_hints(function)
    hints.pop("return", None)
    properties = {name: {"type": names[hint]} for name, hint in hints.items()}
    return {"type": "object", "properties": properties, "required": sorted(properties)}
