"""What is installed, run and searched."""
