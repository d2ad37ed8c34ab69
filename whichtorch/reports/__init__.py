"""From records to something to read."""
