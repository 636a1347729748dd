"""Live windows: a stretch of an ordered topic, kept as it changes."""
