"""Chained servers: a server that shows what another one, its *upstream*, holds.

It has doors, users, sessions and queues of its own, the same as of any server, and no records. A
session's commands go upstream: writes and queries by a connection of the session's own
(`own_link`), subscriptions by one that all sessions of a user share, where equal ones are one
subscription upstream (`shared`). HTTP requests are forwarded (`forward`). Bookmarks and the log are
upstream's. `upstream` knows whether it is there, `link` keeps a connection through its losses.

What of a server differs is chosen in one place, `sow.server.boot.routes`.
"""
