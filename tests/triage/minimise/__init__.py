"""Tests of whichtorch.matrix.triage.minimise."""
