"""The store: tables of current values in memory, and the journal and checkpoints on disk."""
