"""Verdicts and explanations."""
