"""Tests of matrix.privacy."""
