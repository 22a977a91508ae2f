"""Bytes on the wire, without I/O: framing, SSE, strict JSON, content coding."""
