"""Where in the dispatcher a call is, and by which kernels an operator goes."""
