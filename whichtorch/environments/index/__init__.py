"""Package indexes: which releases and builds they hold."""
