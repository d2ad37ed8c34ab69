"""whichtorch: which torch hangs, and which torch fixed it."""
