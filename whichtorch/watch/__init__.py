"""Looking at the machine, at processes and at environments."""

HANG_SIGNAL = 57  # tells a pytest that its test hangs; SIGRTMAX - 7: no library is known to use it
ORDER = "{pid}.hang"  # file with what it is to say of the test; the process removes it
