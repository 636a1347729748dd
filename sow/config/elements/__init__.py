"""The table of elements: everything that config.xml may contain."""
