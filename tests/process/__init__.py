"""Tests of supervision and its evidence, on tiny programs."""
