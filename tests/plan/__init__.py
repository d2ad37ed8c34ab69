"""Tests of matrix.plan."""
