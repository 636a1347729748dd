"""Seeded runs of the whole engine against a naive model."""
