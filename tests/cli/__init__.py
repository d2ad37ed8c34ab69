"""The commands as a user gives them."""
