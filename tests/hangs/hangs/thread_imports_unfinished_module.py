"""A module waits, while it is imported, for a thread that imports the same module."""

import parts.registry

print(parts.registry.models)
