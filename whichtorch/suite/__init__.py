"""Scenarios: their headers, and which of them are chosen."""
