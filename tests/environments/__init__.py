"""Tests of matrix/environments."""
