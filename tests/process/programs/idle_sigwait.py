import signal, os, subprocess

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
subprocess.Popen(["sh", "-c", "sleep 8; kill -USR1 %d" % os.getpid()])
signal.sigwait([signal.SIGUSR1])
