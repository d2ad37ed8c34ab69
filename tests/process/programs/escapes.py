"""Ways out of a sandbox: each function tries one, and returns whether it led out. `escapes.py NAME FACTS` tries NAME."""

import ctypes
import errno
import glob
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

C = ctypes.CDLL(None, use_errno=True)
CALLS = {
    "x86_64": {
        "socket": 41,
        "socketpair": 53,
        "keyctl": 250,
        "open_by_handle_at": 304,
        "bpf": 321,
        "perf_event_open": 298,
        "setns": 308,
        "clone": 56,
    },
    "aarch64": {
        "socket": 198,
        "socketpair": 199,
        "keyctl": 219,
        "open_by_handle_at": 265,
        "bpf": 280,
        "perf_event_open": 241,
        "setns": 268,
        "clone": 220,
    },
}[os.uname().machine]
CALLS["io_uring_setup"] = 425


def call(name, *arguments):
    """Return whether the kernel carries out a system call."""
    return C.syscall(CALLS[name], *arguments) >= 0


def reads(path):
    with open(path, "rb") as file:
        return bool(file.read(1))


def writes(path, mode="ab"):
    with open(path, mode) as file:
        file.write(b"#")
    return True


def read_home(facts):
    """Files in the user's home are not there."""
    return bool(os.listdir(facts["home"]))


def read_key(facts):
    """The user's ssh key is not there."""
    return reads(facts["key"])


def home_of_password_database(_facts):
    """The account that the script sees has no home of the user's."""
    import pwd

    return pwd.getpwuid(os.getuid()).pw_dir != "/tmp" or len(pwd.getpwall()) > 1


def own_variables(facts):
    """Variables of the user's shell are not passed on."""
    return facts["secret"] in json.dumps(dict(os.environ))


def variables_of_parent(facts):
    """The variables of the process above the script cannot be read."""
    return reads(f"/proc/{os.getppid()}/environ")


def memory_of_parent(facts):
    """The memory of the process above the script cannot be read."""
    return reads(f"/proc/{os.getppid()}/maps") or reads(f"/proc/{os.getppid()}/mem")


def root_of_parent(facts):
    """The files of the process above the script cannot be reached."""
    return bool(os.listdir(f"/proc/{os.getppid()}/root")) or bool(os.listdir(f"/proc/{os.getppid()}/fd"))


def list_processes(facts):
    """No process of the machine is listed."""
    return len([name for name in os.listdir("/proc") if name.isdigit()]) > 2


def read_process(facts):
    """A process of the machine cannot be read."""
    return reads(f"/proc/{facts['pid']}/cmdline")


def signal_process(facts):
    """A process of the machine cannot be signalled."""
    os.kill(facts["pid"], signal.SIGKILL)
    return True


def signal_everybody(facts):
    """A signal to all processes reaches none of the machine."""
    os.kill(-1, signal.SIGKILL)
    return False  # the test looks


def trace_process(facts):
    """A process of the machine cannot be traced."""
    return C.ptrace(16, facts["pid"], 0, 0) == 0


def trace_parent(facts):
    """The process above the script cannot be traced."""
    return C.ptrace(16, os.getppid(), 0, 0) == 0


def tcp_of_machine(facts):
    """A port of the machine's loopback interface cannot be reached."""
    socket.create_connection(("127.0.0.1", facts["tcp"]), timeout=2)
    return True


def tcp_outside(facts):
    """Other machines cannot be reached by IPv4."""
    socket.create_connection(("203.0.113.7", 443), timeout=2)
    return True


def tcp6_of_machine(facts):
    """A port of the machine's loopback interface cannot be reached by IPv6."""
    socket.create_connection(("::1", facts["tcp6"]), timeout=2)
    return True


def tcp6_outside(facts):
    """Other machines cannot be reached by IPv6."""
    socket.create_connection(("2001:db8::7", 443), timeout=2)
    return True


def udp(facts):
    """No datagram leaves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", facts["udp"]))
        sender.sendto(b"x", ("203.0.113.7", 53))
    return True


def names(facts):
    """No name is looked up."""
    return bool(socket.getaddrinfo("example.com", 443))


def raw_socket(facts):
    """No packet is made by hand."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    return True


def socket_of_host(facts):
    """The host of a virtual machine, which has no namespaces between itself and a vsock, cannot be reached."""
    return any(has_family(family) for family in range(50) if family not in {1, 2, 10, 16})


def has_family(family):
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW)
    pair = (ctypes.c_int * 2)()
    for high in (0, 1 << 32):  # of an argument of 64 bits; the kernel looks at the lower half
        given = ctypes.c_long(family | high)
        for kind in kinds:
            if call("socket", given, kind, 0) or ctypes.get_errno() != errno.EAFNOSUPPORT:
                return True
            if call("socketpair", given, kind, 0, pair) or ctypes.get_errno() != errno.EAFNOSUPPORT:
                return True
    return False


def unix_socket(facts):
    """A unix socket of the machine cannot be reached."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(facts["unix"])
    return True


def abstract_socket(facts):
    """A unix socket of the machine without a file cannot be reached."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect("\0" + facts["abstract"])
    return True


def shared_memory(facts):
    """Shared memory of the machine is not there."""
    return reads(facts["shared"])


def link_in_own_folder(facts):
    """A link that lies in the script's folder does not lead out of it."""
    return reads(os.path.join(os.path.dirname(os.path.abspath(__file__)), "link"))


def link_of_own(facts):
    """A link that the script makes does not lead out."""
    os.symlink(facts["key"], "made")
    return reads("made")


def path_upwards(facts):
    """A path with .. does not lead out."""
    return reads(os.path.join(os.getcwd(), *[".."] * 40, facts["key"].lstrip("/")))


def setuid_program(facts):
    """A program that is root's does nothing as root."""
    found = [path for path in glob.glob("/usr/bin/*") if os.stat(path).st_mode & 0o4000]
    ran = subprocess.run(["/usr/bin/su", "-c", "id -u"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    with open("/proc/self/status") as file:
        status = file.read()
    return not found or ran.stdout.strip() == "0" or "NoNewPrivs:\t1" not in status or os.geteuid() == 0


def own_setuid_program(facts):
    """A program that the script makes root's is none."""
    import shutil

    shutil.copy("/usr/bin/id", "own-id")
    os.chmod("own-id", 0o6755)
    return subprocess.run(["./own-id", "-u"], capture_output=True, text=True).stdout.strip() == "0"


def capabilities(facts):
    """The script has no capability, and can get none."""
    with open("/proc/self/status") as file:
        sets = [line.split()[1] for line in file if line.startswith("Cap")]
    return any(int(each, 16) for each in sets)


def write_torch(facts):
    """The installation of torch cannot be written to."""
    return writes(facts["torch"])


def write_interpreter(facts):
    """The Python cannot be written to."""
    return writes(os.__file__)


def write_script(facts):
    """The script's own folder cannot be written to."""
    return writes(__file__)


def write_system(facts):
    """The system cannot be written to."""
    return any(os.access(path, os.W_OK) for path in ("/", "/usr", "/usr/bin", "/etc", "/sys", "/proc/sys/kernel"))


def write_state(facts):
    """The records of whichtorch are not there, and cannot be written."""
    return writes(facts["records"], "r+b")


def kernel_settings(facts):
    """Settings of the kernel cannot be changed."""
    for path in glob.glob("/proc/[a-z]*") + glob.glob("/proc/sys/kernel/*") + glob.glob("/proc/dynamic_debug/*"):
        if not os.path.isfile(path):
            continue
        try:
            os.close(os.open(path, os.O_WRONLY))
            return True
        except OSError:
            pass
    raise PermissionError


def disks(facts):
    """The machine's disks are not there, and no device can be made."""
    if any(os.path.exists(f"/dev/{name}") for name in ("sda", "vda", "nvme0n1", "mem", "kmsg", "fuse", "kvm")):
        return True
    os.mknod("disk", 0o60600, os.makedev(8, 0))
    return reads("disk")


def fill_disk(facts):
    """/tmp has an end."""
    with open("/tmp/large", "wb") as file:
        for _ in range(facts["room"] + 10):
            file.write(bytes(1_000_000))
    return True


def fill(folder, megabytes, pause=0):
    for number in range(megabytes):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(bytes(1_000_000))
        time.sleep(pause)
    return True


def fill_many_files(facts):
    """So have the files in /tmp together."""
    return fill("/tmp", facts["room"] + 10)


def fill_shared_memory(facts):
    """/dev/shm has an end."""
    return fill("/dev/shm", facts["room"] + 10)


def fill_own_folder(facts):
    """The script is stopped when it fills its own folder on the machine's disk."""
    return fill(".", 100 * facts["room"], 0.01)


def fill_locked_folder(facts):
    """Nor does it help to make the folder such that nobody can list it."""
    os.mkdir("locked", 0o300)
    return fill("locked", 100 * facts["room"], 0.01)


def fill_removed_files(facts):
    """Nor to remove the files, and to keep them open."""
    kept = []
    for number in range(100 * facts["room"]):
        kept.append(os.open("removed", os.O_CREAT | os.O_EXCL | os.O_RDWR))
        os.unlink("removed")
        os.write(kept[-1], bytes(1_000_000))
        time.sleep(0.01)
    return True


def fill_while_files_go(facts):
    """Nor to remove files again and again beside those that stay."""
    if not os.fork():
        while True:
            for number in range(50):
                open(f"goes-{number}", "wb").close()
            for number in range(50):
                os.unlink(f"goes-{number}")
    return fill_own_folder(facts)


def fill_memory(facts):
    """The script is stopped when it fills the memory."""
    kept = []
    while len(kept) < 40:
        kept.append(b"x" * 50_000_000)
        time.sleep(0.02)
    return True


def fork_bomb(facts):
    """The script is stopped when it has too many processes."""
    while True:
        os.fork()
        time.sleep(0.01)


def daemon(facts):
    """A daemon does not outlive the script."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.close(1)
            os.close(2)
            time.sleep(600)
        os._exit(0)
    os.wait()
    return False  # the test looks


def type_into_terminal(facts):
    """Nothing can be typed into a terminal, neither the user's nor one of its own."""
    import fcntl
    import pty

    try:
        os.open("/dev/tty", os.O_RDWR)
        return True
    except OSError:
        pass
    _, own = pty.openpty()
    os.setsid() if os.getpid() != os.getsid(0) else None
    fcntl.ioctl(own, 0x540E, 0)  # TIOCSCTTY: it is the script's terminal now
    fcntl.ioctl(own, 0x5412, b"x")  # TIOCSTI
    return True


def mount(facts):
    """Nothing can be mounted."""
    return C.mount(b"none", b"/tmp", b"tmpfs", 0, b"") == 0


def remount(facts):
    """What can only be read cannot be made writable."""
    return C.mount(b"none", b"/usr", None, 0x1020, None) == 0 or C.syscall(442, -100, b"/usr", 0, bytes(32), 32) == 0


def unmount(facts):
    """What hides the machine's folders cannot be taken away."""
    return any(C.umount2(path, 2) == 0 for path in (b"/tmp", b"/proc", b"/proc/sys", b"/"))


def user_namespace(facts):
    """No user namespace can be made, in which the script would be root."""
    return C.unshare(0x10000000) == 0


def user_namespace_of_child(facts):
    """Nor one for a child."""
    child = C.syscall(CALLS["clone"], 0x10000000 | 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0


def enter_namespace(facts):
    """No other namespace can be entered."""
    return C.setns(os.pidfd_open(os.getppid()), 0x10000000 | 0x20000) == 0


def change_root(facts):
    """The root cannot be changed, which would lead out by a folder that is open."""
    folder = os.open("/", os.O_RDONLY)
    os.mkdir("/tmp/jail")
    os.chroot("/tmp/jail")
    os.fchdir(folder)
    return True


def file_by_handle(facts):
    """No file can be opened by its handle, which needs no path."""
    return call("open_by_handle_at", os.open("/", os.O_RDONLY), ctypes.create_string_buffer(bytes(128)), 0)


def keys(facts):
    """The user's keys in the kernel cannot be read."""
    return call("keyctl", 0, -4, 0)


def programs_for_kernel(facts):
    """No program can be given to the kernel, and no counter be read."""
    return call("bpf", 0, bytes(128), 128) or call("perf_event_open", bytes(128), 0, -1, -1, 0)


def calls_without_filter(facts):
    """No call can be made that passes by the filter."""
    return call("io_uring_setup", 8, ctypes.create_string_buffer(120))


def host_name(facts):
    """The name of the machine is not told, and cannot be changed."""
    return socket.gethostname() == facts["host"] or C.sethostname(b"x", 1) == 0


def clock(facts):
    """The machine's clock cannot be set."""
    return C.clock_settime(0, struct.pack("@ll", 0, 0)) == 0


if __name__ == "__main__":
    name, given = sys.argv[1], json.loads(sys.argv[2])
    print("tried", name, flush=True)
    try:
        print("ESCAPED" if globals()[name](given) else "blocked", flush=True)
    except Exception as error:
        print("blocked:", repr(error), flush=True)
