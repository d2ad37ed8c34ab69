import subprocess

subprocess.run(["sleep", "8"])
