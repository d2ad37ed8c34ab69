"""Which versions exist, and the environments made of them."""
