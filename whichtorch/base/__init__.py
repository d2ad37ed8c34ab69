"""What may not be told: how secrets look, and how they are kept out."""
