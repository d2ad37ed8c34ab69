"""Tests of whichtorch.environments."""
