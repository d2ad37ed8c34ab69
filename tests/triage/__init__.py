"""Tests of whichtorch.triage."""
