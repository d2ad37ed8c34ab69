def numbers(n):
    for i in range(n):
        got = yield i
    yield from [1, 2]


for i in numbers(2):
    if i:
        continue
    break
