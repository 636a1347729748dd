"""All that a day has, for an hour: what a server holds must not grow, and nothing may be lost."""
