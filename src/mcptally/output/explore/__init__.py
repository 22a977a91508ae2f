"""Serves a store to a browser on this machine: the report, every call, sessions, questions and SQL.

    application → pages → templates/explore.html

May import what `output` may import, and the page of `output.html`.

The server listens on loopback only, and every address contains a random token, so that other users
and other web pages cannot read the store. Requests with a foreign `Host` or `Origin` are refused.
Nothing can be changed: all requests are GET, and SQL runs under the limits of `serve`.
"""
