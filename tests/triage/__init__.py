"""Tests of whichtorch.matrix.triage."""
