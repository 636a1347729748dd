"""What clients may ask for: each command carried out on the engine."""
