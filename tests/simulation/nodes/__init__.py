"""Whole servers, followers and chained servers in one process, on virtual time and network."""
