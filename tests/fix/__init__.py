"""Tests of whichtorch.fix."""
