"""Views: topics whose records are made of groups of the records of other topics."""
