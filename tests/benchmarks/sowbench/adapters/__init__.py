"""The adapters: a file for each server."""
