from os.path import *
import a.b.c, d as e

x = y = join("a", *"bc")
del x, y
