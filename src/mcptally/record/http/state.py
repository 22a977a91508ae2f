"""Declares the states of a client connection."""

import enum


class State(enum.Enum):
    """The states of a connection, by the event that it waits for; see the handlers in proxy.py."""

    IDLE = enum.auto()
    """Waits for the first bytes of a request."""
    REQUESTED = enum.auto()
    """Waits for the response head; the request may be incomplete."""
    RESPONDING = enum.auto()
    """Waits for the rest of the response; the request may be incomplete."""
    RAW = enum.auto()
    """Waits for the rest of a response that is not HTTP."""
    ANSWERED = enum.auto()
    """Waits for the rest of the request; the response is complete."""
    LINGERING = enum.auto()
    """Waits for the client to close after its last response; its data is discarded."""
    CLOSED = enum.auto()
    """Waits for nothing."""
