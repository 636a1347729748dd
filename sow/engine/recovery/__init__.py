"""Restart: checkpoints restored, the tail of the log replayed, orphaned records."""
