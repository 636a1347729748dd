"""What must agree between the elements of a document."""
