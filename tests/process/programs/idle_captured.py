import subprocess

print(subprocess.run("sleep 8; echo x", shell=True, capture_output=True, text=True).stdout)
