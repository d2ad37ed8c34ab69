"""`python -m whichtorch` is `whichtorch`."""

from whichtorch.matrix.cli import main

if __name__ == "__main__":
    main()
