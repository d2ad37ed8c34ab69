"""One way to ask torch a question: run a script in an environment in some variation, and read what came of it."""
