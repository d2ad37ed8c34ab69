import subprocess

subprocess.run(["sh", "-c", "while :; do :; done"])
