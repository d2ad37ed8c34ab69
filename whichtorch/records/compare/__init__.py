"""What differs: between environments, between versions, between runs and from night to night."""
