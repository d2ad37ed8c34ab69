"""One process tree: started, watched, stopped, accounted for."""
