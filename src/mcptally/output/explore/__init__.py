"""Serves a store to a browser on this machine: servers, tools, errors, calls, sessions, and review.

    listener → app → a module per page → page → templates/

May import what `output` may import, `review`, and the page of `output.html`.

The server listens on loopback only, and every address contains a random token, so that other users
and other web pages cannot read the store. Requests with a foreign `Host` or `Origin` are refused.
The only thing that changes is the file of answers of a review, by forms of our own pages. SQL runs
under the limits of `serve`.
"""
