"""Which value of an axis changed the outcome of a test."""
