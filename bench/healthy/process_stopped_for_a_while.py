# a process is stopped, and goes on after a while
import multiprocessing as mp, os, signal, threading

if __name__ == "__main__":
    child, pause = mp.Process(target=print), threading.Event()
    child.start()
    os.kill(child.pid, signal.SIGSTOP)
    for _ in range(13):
        pause.wait(1)
    os.kill(child.pid, signal.SIGCONT)
    child.join()
