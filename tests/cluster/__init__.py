"""Tests of matrix.cluster."""
