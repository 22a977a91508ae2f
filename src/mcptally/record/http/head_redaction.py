"""Redacts request and response heads for the recording."""

import functools
from typing import Final

from mcptally.record.http.head import ANY_LENGTH, Head
from mcptally.redaction.policy import Policy
from mcptally.transcript.writer.event_line import http_event

_MAX_CACHED_CHARS: Final = 4096
"""Maximum characters of a cached path."""

_ANY_LENGTH: Final = b'"content-length":"%b"' % ANY_LENGTH


class HeadRedaction:
    """Redacts heads and caches the results.

    Only allowed headers remain, and session ids are replaced by hashes. `length_text` is the value
    of Content-Length; None means that `head` contains the value.
    """

    def __init__(self, policy: Policy) -> None:
        # Cache the results, because peers repeat nearly all heads and paths.
        self._policy = policy
        self._cached_request = functools.lru_cache(512)(self._request)
        self._cached_response = functools.lru_cache(512)(self._response)

    def request(self, method: str, path: str, head: Head, length_text: bytes | None) -> bytes:
        """Return the fields that describe a request, as JSON without braces."""
        is_cached = head.is_cached and len(path) <= _MAX_CACHED_CHARS
        fields = (self._cached_request if is_cached else self._request)(method, path, head)
        return fields if length_text is None else _with_length(fields, length_text)

    def response(self, status: int | None, head: Head, length_text: bytes | None) -> bytes:
        """Return the fields that describe a response, as JSON without braces."""
        fields = (self._cached_response if head.is_cached else self._response)(status, head)
        return fields if length_text is None else _with_length(fields, length_text)

    def path(self, path: str) -> str:
        """Return a path and query with session ids hashed."""
        return self._policy.url(path)[0]

    def _request(self, method: str, path: str, head: Head) -> bytes:
        headers = self._policy.headers(head.text)[0]
        fields = {"phase": "request", "method": method, "path": self.path(path)}
        return http_event({**fields, "headers": headers})

    def _response(self, status: int | None, head: Head) -> bytes:
        headers = self._policy.headers(head.text)[0]
        return http_event({"phase": "response", "status": status, "headers": headers})


def _with_length(fields: bytes, length_text: bytes) -> bytes:
    """Replace `ANY_LENGTH` with the value of Content-Length."""
    return fields.replace(_ANY_LENGTH, b'"content-length":"%b"' % length_text)
