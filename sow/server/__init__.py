"""The network edge: HTTP, WebSocket and server-sent events on one port, driving the engine."""
