"""Subscriptions: creating, replaying, replacing and ending them."""
