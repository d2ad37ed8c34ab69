"""Tests of matrix.triage."""
