"""The pure part of a search: evidence in, the next probe or the answer out."""
