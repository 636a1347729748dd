"""The table of elements: everything that may stand in config.xml."""
