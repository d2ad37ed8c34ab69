# Twenty functions in turn: even on a busy machine, the samples of a second find it in different ones.
WORK = """
def work_{number}():
    total = 0
    for value in range(200_000):
        total += value * value
"""

functions = {}
for number in range(20):
    exec(WORK.format(number=number), functions)

while True:
    for number in range(20):
        functions[f"work_{number}"]()
