"""Delivery of topic changes: from a batch, through feeds and channels, to a session's outbox."""
