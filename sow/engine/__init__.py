"""The engine: all topics and sessions in one step of time, and what becomes due by itself."""
