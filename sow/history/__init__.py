"""Pinned records and log entries: as they are, as they were, and from a bookmark on."""
