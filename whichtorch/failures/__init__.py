"""From what a process did to a verdict."""
