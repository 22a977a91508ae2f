"""Serves a store to a browser on this machine: servers, tools, errors, calls, sessions, and review.

    listener → app → pages → a module per page → page → templates/

May import the same folders as `output`, as well as `review` and the page of `output.html`.

The server listens only on loopback, and every address contains a random token, so that other users
and other web pages cannot read the store. Requests with a foreign `Host` or `Origin` are rejected.
Only the file of review answers can be changed, through forms on our own pages. SQL runs with the
same limits as in `serve`.
"""
