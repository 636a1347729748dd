"""Live windows: a range of positions of an ordered topic, kept current."""
