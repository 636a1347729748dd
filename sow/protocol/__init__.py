"""Commands, their options, and how lines travel in and out."""
