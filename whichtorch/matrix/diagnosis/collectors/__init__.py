"""Parsers: what each collector of stacks writes, as threads and frames."""
