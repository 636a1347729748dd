"""Permissions, row-level security, topic patterns and authentication."""
