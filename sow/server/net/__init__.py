"""Sockets: listening, connections, WebSockets, server-sent events."""
