"""The smallest script that fails in the same way."""
