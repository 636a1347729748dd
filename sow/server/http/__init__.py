"""HTTP below the resources: negotiation, compression, preconditions, limits, authentication."""
