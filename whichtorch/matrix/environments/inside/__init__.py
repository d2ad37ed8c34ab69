"""Programs and hooks that run inside the environments under test."""
