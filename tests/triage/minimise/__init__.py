"""Tests of matrix.triage.minimise."""
