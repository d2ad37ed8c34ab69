def squares(count):
    return sum(number * number for number in range(count))


def words(count):
    return sorted(str(number) for number in range(count))


def table(count):
    return {number: number for number in range(count)}


while True:
    squares(4_000_000)
    words(400_000)
    table(3_000_000)
