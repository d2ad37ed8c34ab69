"""A bug report -> the script in it, what it claims, and whether that is true."""
