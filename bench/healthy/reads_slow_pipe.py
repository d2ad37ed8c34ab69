# polls a pipe of a program that prints late
import select, subprocess

child = subprocess.Popen(["sh", "-c", "sleep 13; echo done"], stdout=subprocess.PIPE)
while not select.select([child.stdout], [], [], 0.5)[0]:
    pass
child.communicate()
