"""Tests of whichtorch.triage.minimise."""
