# a monitor's thread waits in a loop for the end, as that of tqdm does, while the main thread waits for a slow program
import subprocess, threading

end = threading.Event()


def watch():
    while not end.wait(3):
        pass


thread = threading.Thread(target=watch, daemon=True)
thread.start()
subprocess.run(["sleep", "13"])
end.set()
thread.join()
