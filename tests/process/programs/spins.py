import sys


def go_round():
    turns = 0
    while True:
        turns += 1
        if turns > 10:
            turns = 0


go_round()
