total = 0


def add(k, /, l):
    global total
    total += k


add(1, l=2)
assert total == 2, f"{total!r:>{4}}"
