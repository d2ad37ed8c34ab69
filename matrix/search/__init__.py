"""From evidence to the next probe."""
