"""The nights of a CI service: the plan, the workflow, and what docs/ci.md shows for others."""
