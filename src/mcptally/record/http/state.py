"""The states of a client connection."""

import enum


class State(enum.Enum):
    """What a connection waits for; proxy.py has a table of what each event does in each state."""

    IDLE = enum.auto()
    """The first bytes of a request."""
    REQUESTED = enum.auto()
    """The head of the response; the request may be incomplete."""
    RESPONDING = enum.auto()
    """The rest of the response; the request may be incomplete."""
    RAW = enum.auto()
    """The rest of a response that is not HTTP."""
    ANSWERED = enum.auto()
    """The rest of the request: its response is complete."""
    LINGERING = enum.auto()
    """The client's end: it has its last response, and what it still sends is discarded."""
    CLOSED = enum.auto()
    """Nothing."""
