"""HTTP recording proxy for Streamable HTTP and legacy HTTP+SSE; imports record.writer and wire."""
