"""Spans of this process, written to a file by the library that SPANS_BY names."""

import os
import pathlib


def write_spans(path, service):
    """Write spans to `path`, if it is given."""
    if not path:
        return
    by = os.environ.get("SPANS_BY", "opentelemetry")
    if by == "sentry":
        import sentry_sdk
        from sentry_sdk.integrations.mcp import MCPIntegration
        from sentry_sdk.transport import Transport

        class ToFile(Transport):
            def capture_envelope(self, envelope):
                with pathlib.Path(path).open("ab") as file:
                    file.write(envelope.serialize() + b"\n")

        sentry_sdk.init(
            dsn="http://key@127.0.0.1:9/1",
            transport=ToFile,
            traces_sample_rate=1.0,
            send_default_pii=True,
            integrations=[MCPIntegration()],
            server_name="host",
        )
        return
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.json.file import FileSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(path)))
    trace.set_tracer_provider(provider)
    if by == "traceloop":
        from opentelemetry.instrumentation.mcp import McpInstrumentor

        McpInstrumentor().instrument()
