# twenty functions in turn: on the busiest machine, too, a second's samples find it in different ones
WORK = """
def work_{number}():
    total = 0
    for one in range(200_000):
        total += one * one
"""

functions = {}
for number in range(20):
    exec(WORK.format(number=number), functions)

while True:
    for number in range(20):
        functions[f"work_{number}"]()
