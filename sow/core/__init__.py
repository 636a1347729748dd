"""Nouns that every other room uses: changes, definitions, keys, paths, deltas. No I/O, and no clock
but `clock`."""
