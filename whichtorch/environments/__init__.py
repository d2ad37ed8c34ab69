"""Which versions exist, and the environments made of them."""

INSTALL_TIMEOUT: float = 1800  # seconds for one step of an install: 3 GB over a slow line
