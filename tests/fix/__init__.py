"""Tests of matrix.fix."""
