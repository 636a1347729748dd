"""SOW as it is handed out: what it says of itself, what is built of it, and what that needs."""
