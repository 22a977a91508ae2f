"""Record an HTTP server: proxy its exchanges, Streamable HTTP and legacy SSE."""
