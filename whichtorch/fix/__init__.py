"""Two releases and a script that only one of them runs -> the smallest change of Python that makes the other run it."""
