"""Records on disk, stored runs, and what follows from them."""
