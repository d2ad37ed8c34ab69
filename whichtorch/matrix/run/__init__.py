"""From planned cells to attempts and records."""
