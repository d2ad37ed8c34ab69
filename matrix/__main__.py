"""`python -m matrix` is `whichtorch`."""

from matrix.cli import main

if __name__ == "__main__":
    main()
