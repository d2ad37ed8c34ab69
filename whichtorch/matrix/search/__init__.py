"""Searches as pure generators, and what answers them: a search yields a question and is sent the answer."""
