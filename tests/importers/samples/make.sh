#!/bin/sh
# Makes the samples anew: real programs, each beside our own recorder on the same traffic.
# On PATH: mcptally, mcphawk, mitmdump, and `python` with mcp, opentelemetry-sdk and
# opentelemetry-exporter-otlp-json-file. Run it in an empty folder that has client.py, server.py and spans.py.
set -eu
HOME=$PWD MCPHAWK_HOME=$PWD/hawk
export HOME MCPHAWK_HOME
python client.py legacy,auto mcphawk wrap -- mcptally record --out rec-mcphawk --name orders -- python server.py
SPANS_CLIENT=spans-client.jsonl SPANS_SERVER=spans-server.jsonl \
    python client.py legacy,auto mcptally record --out rec-otlp --name orders -- python server.py
python server.py 9101 & SERVER=$!
mcptally record --out rec-mitmproxy --name orders --url http://127.0.0.1:9101 --listen 127.0.0.1:9102 & OURS=$!
mitmdump -q --mode reverse:http://127.0.0.1:9102 --listen-port 9103 --set hardump=mitmproxy.har & THEIRS=$!
sleep 5
python client.py legacy,auto http://127.0.0.1:9103/mcp
sleep 1; kill -INT $THEIRS; sleep 2; kill -INT $OURS; sleep 1; kill $SERVER
# Each of these in an environment of its own: sentry-sdk, mcp 2; pydantic-ai-slim[mcp]; mcp<2 and
# opentelemetry-instrumentation-mcp (Traceloop's); openinference-instrumentation-langchain.
SPANS_BY=sentry SPANS_SERVER=sentry.jsonl python client.py auto mcptally record --out rec-sentry --name orders -- python server.py
SPANS_CLIENT=spans-agent.jsonl python agent.py mcptally record --out rec-agent --name orders -- python server.py
SPANS_BY=traceloop SPANS_CLIENT=spans-traceloop.jsonl \
    python client1.py mcptally record --out rec-traceloop --name orders -- python server1.py
SPANS_CLIENT=spans-openinference.jsonl python chain.py
mv hawk/mcphawk.db mcphawk.db
for name in mcphawk otlp mitmproxy sentry agent traceloop; do cat rec-$name/*.jsonl > recorded-$name.jsonl; done
gzip -9n mitmproxy.har recorded-*.jsonl spans-*.jsonl sentry.jsonl
