"""What the functions of libraries wait for, as data: one row for each way to wait that a user can call.

A wait shows as several frames of a library below the user's own line: `Condition.wait` in `Queue.get` in
`DataLoader.__next__`. The outermost of them that has a row says what the user waits for. A row names no lines of a
library, and a class only where functions of one name wait for different things.

The module is longer than others because it is a table, and its rows stay together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from whichtorch.hangs.source_text import owner_class
from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from whichtorch.hangs.stacks import Frame


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A function of a library in which a thread waits, and who could end the wait."""

    waiting: Waiting
    what: str  # that is waited for, after "for"; {object} is what the user calls it, [] holds what needs it
    ender: str  # who could end it: "nobody is left that could <ender>"
    file: str  # end of the path
    function: str  # pattern of the name without its class
    name: str  # as users call it; {function} is the function's own name
    owner: str = ""  # pattern of the class; "" for any
    values: tuple[str, ...] = ()  # local variables, the first known of which names what is waited for
    is_of_manager: bool = False  # a process of multiprocessing answers on behalf of its objects
    is_exit: bool = False  # the interpreter calls it when the script has come to its end
    reason: str = ""  # why the wait may have no end, where nobody is seen who could end it
    is_frame_of_others: bool = False  # whatever runs inside it that waits says more
    inside: str = ""  # pattern of a native function inside it; "" for any
    is_innermost: bool = False  # the function waits itself: there is no frame of Python inside it


_C10D = "torch/distributed/distributed_c10d.py"
_DISTRIBUTED = "torch.distributed.{function}"
_CONNECTION = "multiprocessing/connection.py"
_STALE = "it waits as long as the file exists; if no build is under way, it was left behind, and may be removed"

# What is waited for and who could end it, where several rows say the same.
_ITEM = (Waiting.QUEUE, "an item of the queue {object}, which is empty", "put one")
_RESULT = (Waiting.FUTURE, "the result of the future {object}", "set it")
_CLIENT = (Waiting.SOCKET, "a client to connect", "connect")
_FILE_LOCK = (Waiting.FILE_LOCK, "the lock of the file {object}", "release it")
_RANKS = (Waiting.RENDEZVOUS, "the other ranks to come", "")
_NOTIFICATION = (Waiting.CONDITION, "a notification of the condition {object}", "notify it")
_SEMAPHORE = (Waiting.SEMAPHORE, "the lock or semaphore {object}", "release it")
_TASKS_DONE = (Waiting.QUEUE, "all items of the queue {object} to be marked as done", "call task_done")
_DATA = (Waiting.SOCKET, "data of the peer {end}", "send it")
_CHILD = (Waiting.CHILD, "", "")
_COLLECTIVE = (Waiting.COLLECTIVE, "", "")
_THREAD = (Waiting.THREAD, "", "")

PYTHON_CALLS = (
    LibraryCall(*_THREAD, "threading.py", "join", "Thread.join"),
    LibraryCall(*_THREAD, "threading.py", "_shutdown", "threading._shutdown", is_exit=True),
    LibraryCall(
        Waiting.EVENT, "the event {object} to be set", "set it", "threading.py|multiprocessing/synchronize.py", "wait",
        "Event.wait", owner="Event",
    ),
    LibraryCall(
        Waiting.BARRIER, "the others to come to the barrier {object}", "come", "threading.py", "wait|_wait|_enter",
        "Barrier.wait", owner="Barrier",
    ),
    LibraryCall(
        Waiting.SEMAPHORE, "the semaphore {object}", "release it", "threading.py", "acquire|__enter__",
        "Semaphore.acquire", owner=r"\w*Semaphore",
    ),
    LibraryCall(
        Waiting.CONDITION, "a notification of the condition {object}[ that makes {first} true]", "notify it",
        "threading.py|multiprocessing/synchronize.py", "wait_for", "Condition.wait_for",
    ),
    LibraryCall(*_NOTIFICATION, "threading.py", "wait", "Condition.wait", owner="Condition|"),
    LibraryCall(
        Waiting.QUEUE, "room in the queue {object}, which is full", "take an item out",
        "queue.py|multiprocessing/queues.py", "put", "Queue.put",
    ),
    LibraryCall(*_TASKS_DONE, "queue.py", "join", "Queue.join"),
    LibraryCall(
        Waiting.QUEUE, "the lock of the reading end of the queue {object}", "release it", "multiprocessing/queues.py",
        "get", "Queue.get", inside=".*SemLock_acquire.*",
    ),
    LibraryCall(*_ITEM, "queue.py|multiprocessing/queues.py", "get", "Queue.get"),
    LibraryCall(*_TASKS_DONE, "multiprocessing/queues.py", "join", "JoinableQueue.join", owner="JoinableQueue"),
    LibraryCall(*_THREAD, "multiprocessing/queues.py", "join_thread|_finalize_join", "Queue.join_thread"),
    LibraryCall(*_NOTIFICATION, "multiprocessing/synchronize.py", "wait", "Condition.wait", owner="Condition"),
    LibraryCall(*_SEMAPHORE, "multiprocessing/synchronize.py", "acquire|__enter__", "acquire"),
    LibraryCall(
        Waiting.PIPE, "a message on the pipe {object}", "send one", _CONNECTION,
        "recv|recv_bytes|recv_bytes_into|poll", "Connection.{function}",
    ),
    LibraryCall(
        Waiting.PIPE, "room in the pipe {object}, which is full", "read from it", _CONNECTION,
        "send|send_bytes", "Connection.{function}",
    ),
    LibraryCall(Waiting.SOCKET, "a connection[ to {object}]", "connect", _CONNECTION, "accept", "Listener.accept"),
    LibraryCall(
        Waiting.SOCKET, "an answer of the listener {end}", "answer", _CONNECTION,
        "Client|SocketClient|answer_challenge|deliver_challenge", "multiprocessing.connection.Client",
    ),
    LibraryCall(Waiting.IO, "", "", _CONNECTION, "wait", "multiprocessing.connection.wait"),
    LibraryCall(*_CHILD, "multiprocessing/process.py", "join", "Process.join"),
    LibraryCall(
        Waiting.PIPE, "the child to read what it is started with, of which its pipe is full", "read it",
        "multiprocessing/process.py", "start", "Process.start",
    ),
    LibraryCall(*_CHILD, "multiprocessing/util.py", "_exit_function", "the exit of multiprocessing", is_exit=True),
    LibraryCall(
        Waiting.FUTURE, "[{object}, ]the result of a task of a pool", "give it", "multiprocessing/pool.py", "get|wait",
        "AsyncResult.{function}", owner=r"\w*Result",
    ),
    LibraryCall(
        Waiting.FUTURE, "the result of a task of the pool {object}", "give it", "multiprocessing/pool.py",
        "map|starmap|apply|next|__next__", "Pool.{function}",
    ),
    LibraryCall(*_CHILD, "multiprocessing/pool.py", "join|__exit__|terminate|_terminate_pool", "Pool.{function}"),
    LibraryCall(
        Waiting.CHILD, "an answer of the manager's process[ about {object}]", "answer", "multiprocessing/managers.py",
        "_callmethod|_create|_connect|start|__enter__|connect", "multiprocessing.Manager", is_of_manager=True,
    ),
    LibraryCall(*_RESULT, "concurrent/futures/_base.py", "result|exception", "Future.{function}"),
    LibraryCall(
        Waiting.FUTURE, "the futures to be done", "set their results", "concurrent/futures/_base.py",
        "wait|as_completed|__next__|result_iterator|_result_or_cancel", "concurrent.futures.{function}",
    ),
    LibraryCall(
        Waiting.FUTURE, "the tasks of the pool {object} to end", "end them",
        "concurrent/futures/_base.py|concurrent/futures/thread.py|concurrent/futures/process.py", "__exit__|shutdown",
        "Executor.shutdown",
    ),
    LibraryCall(
        *_THREAD, "concurrent/futures/thread.py|concurrent/futures/process.py", "_python_exit",
        "the exit of concurrent.futures", is_exit=True,
    ),
    LibraryCall(
        *_CHILD, "subprocess.py", "wait|_wait|communicate|_communicate|run|call|check_call|check_output|_try_wait",
        "subprocess.{function}",
    ),
    LibraryCall(
        Waiting.PIPE, "the program to start", "", "subprocess.py", "__init__|_execute_child", "subprocess.Popen",
    ),
    LibraryCall(
        Waiting.EVENT_LOOP, "", "", "asyncio/runners.py|asyncio/base_events.py", "run|run_until_complete|run_forever",
        "asyncio.{function}", is_frame_of_others=True,
    ),
    LibraryCall(
        Waiting.LOCK, "the lock of a logging handler", "release it", "logging/__init__.py",
        "acquire|_acquireLock|handle|callHandlers|_log|debug|info|warning|error|critical|exception|log", "logging",
        is_frame_of_others=True,
    ),
    LibraryCall(
        Waiting.LOCK, "the import lock of module {object}", "end its import",
        "<frozen importlib._bootstrap>|importlib/_bootstrap.py",
        "acquire|_lock_unlock_module|_find_and_load|__enter__|import_module", "import", values=("name", "fullname"),
        is_frame_of_others=True,
    ),
    LibraryCall(*_CLIENT, "socket.py", "accept", "socket.accept"),
    LibraryCall(*_DATA, "socket.py", "readinto", ""),
    LibraryCall(
        Waiting.SOCKET, "an answer of the server {end}", "answer", "ssl.py|http/client.py|urllib/request.py",
        "read|recv|recv_into|getresponse|urlopen|request|connect|do_handshake", "{function}",
    ),
    LibraryCall(*_CLIENT, "socketserver.py", "serve_forever", "serve_forever", is_frame_of_others=True),
    LibraryCall(
        Waiting.EVENT, "the end of the server's serve_forever", "end it", "socketserver.py", "shutdown", "shutdown",
    ),
    LibraryCall(
        *_FILE_LOCK, "filelock/_api.py|filelock/_unix.py|filelock/_soft.py", "acquire|__enter__", "FileLock.acquire",
        values=("lock_filename", "lock_file", "path"),
    ),
)  # fmt: skip

TORCH_CALLS = (
    LibraryCall(
        Waiting.FUTURE, "a batch of its workers", "send one", "torch/utils/data/dataloader.py",
        "__next__|_next_data|_get_data|_try_get_data|__iter__", "the iterator of the DataLoader",
    ),
    LibraryCall(*_CHILD, "torch/multiprocessing/spawn.py", "join|start_processes|spawn", "torch.multiprocessing.spawn"),
    LibraryCall(*_RANKS, _C10D, "init_process_group|_store_based_barrier", "torch.distributed.init_process_group"),
    LibraryCall(*_RANKS, _C10D, "new_group|new_subgroups|new_subgroups_by_enumeration|split_group", _DISTRIBUTED),
    LibraryCall(
        Waiting.RENDEZVOUS, "the other nodes to come", "",
        "torch/distributed/elastic/rendezvous/.*|torch/distributed/elastic/utils/store.py",
        "next_rendezvous|.*barrier|synchronize|get_all|.*rendezvous.*", "the rendezvous of torchrun",
        reason="fewer nodes have come than the job was started for (--nnodes)",
    ),
    LibraryCall(
        *_CHILD, "torch/distributed/run.py|torch/distributed/launcher/api.py|torch/distributed/elastic/agent/.*",
        "main|run|launch_agent|_invoke_run|_monitor_workers|_exit_barrier", "torchrun", is_frame_of_others=True,
    ),
    LibraryCall(Waiting.COLLECTIVE, "a rank to receive", "", _C10D, "(?:send|isend)(?:_object_list)?", _DISTRIBUTED),
    LibraryCall(Waiting.COLLECTIVE, "a rank to send", "", _C10D, "(?:recv|irecv)(?:_object_list)?", _DISTRIBUTED),
    LibraryCall(*_COLLECTIVE, _C10D, r"[a-z]\w+", _DISTRIBUTED),
    LibraryCall(
        *_COLLECTIVE,
        "torch/distributed/_functional_collectives.py|torch/distributed/nn/functional.py|"
        "torch/distributed/(?:fsdp|_composable|tensor|checkpoint|algorithms|optim|pipelining|utils)[/.].*",
        r"\w+", _DISTRIBUTED,
    ),
    LibraryCall(*_COLLECTIVE, "torch/nn/parallel/distributed.py", r"\w+", "DistributedDataParallel.{function}"),
    LibraryCall(
        Waiting.FUTURE, "the answer of another worker", "answer", "torch/distributed/rpc/.*",
        r"rpc_sync|remote|to_here|local_value|shutdown|_\w*wait\w*|wrapper|_invoke_rpc|rpc_async",
        "torch.distributed.rpc",
    ),
    LibraryCall(
        *_RESULT, "torch/futures/__init__.py", "wait|value|wait_all|collect_all", "torch.futures.Future.{function}",
    ),
    LibraryCall(
        Waiting.FUTURE, "the result of a compile worker", "give it", "torch/_inductor/async_compile.py",
        "wait|_wait_futures|result", "torch.compile's pool of workers",
    ),
    LibraryCall(
        Waiting.LOCK, "torch.compile's lock, which lets one thread compile at a time", "release it",
        "torch/_dynamo/convert_frame.py|torch/_dynamo/eval_frame.py", r"\w+", "torch.compile", is_innermost=True,
    ),
    LibraryCall(
        *_FILE_LOCK, "torch/utils/_filelock.py", r"\w+", "FileLock.acquire",
        values=("lock_filename", "lock_file", "path"),
    ),
    LibraryCall(
        Waiting.FILE, "the lock file {object} to disappear", "remove it", "torch/utils/file_baton.py", "wait",
        "FileBaton.wait", values=("lock_file_path",), reason=_STALE,
    ),
)  # fmt: skip
ROWS = (*PYTHON_CALLS, *TORCH_CALLS)


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A native function in which a thread waits, below Python code or without any."""

    waiting: Waiting
    what: str
    ender: str
    function: str  # pattern of the name
    name: str = ""  # as users call it, where the source of the caller does not tell


# The first row of which a frame is found decides, whatever frames lie inside it.
NATIVE_CALLS = (
    NativeCall(
        *_COLLECTIVE, r"c10d::Reducer::\w+", name="backward, in DistributedDataParallel's all_reduce of the gradients",
    ),
    NativeCall(*_RANKS, "c10d::TCPStore::waitForWorkers", name="TCPStore"),
    NativeCall(
        Waiting.SOCKET, "an answer of the store's server {end}", "answer",
        "c10d::TCPStore::(?:check|add|compareSet|append|multiSet|getNumKeys|deleteKey|queueLen|queuePush|listKeys)",
    ),
    NativeCall(
        Waiting.RENDEZVOUS, "the key {object} of the store", "set it",
        r"c10d::(?:detail::)?(?:Prefix|File|Hash|TCP)?(?:Store|Client)\w*::\w+",
    ),
    NativeCall(
        *_COLLECTIVE, r"c10d::(?:\w+::)*\w*[wW]ork\w*::(?:wait\w*|synchronize\w*)|gloo::\w+(?:::\w+)*",
        name="Work.wait",
    ),
    # What other backends than gloo and other versions of torch call their functions.
    NativeCall(*_COLLECTIVE, r"c10d::\w+(?:::\w+)*", name="torch.distributed"),
    NativeCall(*_ITEM, r"_queue_SimpleQueue_get\w*"),
    NativeCall(*_SEMAPHORE, r"_multiprocessing_SemLock_acquire\w*|semlock_acquire\w*|SemLock_acquire"),
    NativeCall(*_FILE_LOCK, r"fcntl_(?:flock|lockf|fcntl)\w*"),
    NativeCall(*_CLIENT, r"sock_accept\w*"),
    NativeCall(
        Waiting.SOCKET, "the peer {end} to accept the connection", "accept it", r"sock_connect\w*|internal_connect",
    ),
    NativeCall(Waiting.SOCKET, "the peer {end} to read", "read", r"sock_send\w*"),
    NativeCall(*_DATA, r"sock_\w*recv\w*"),
    NativeCall(Waiting.IO, "a line on stdin", "", r"builtin_input\w*|PyFile_GetLine|PyOS_Readline\w*"),
    NativeCall(Waiting.EVENT, "a signal", "", r"signal_(?:pause|sig\w*wait)\w*"),
    NativeCall(*_CHILD, r"os_wait\w*"),
    NativeCall(*_RESULT, r"c10::ivalue::Future::wait\w*|torch::jit::\w+::wait\w*"),
    NativeCall(
        Waiting.DEVICE, "", "",
        r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize\w*|c10::cuda::\w*[sS]ynchronize\w*",
    ),
)  # fmt: skip

# The outermost function that a user's native code has called decides.
OWN_NATIVE_CALLS = (
    NativeCall(
        Waiting.FUTURE, "the result of a C++ future", "set it",
        r"std::(?:\w+::)*_*\w*future\w*::(?:_State_\w+::)?\w*(?:get|wait)\w*",
    ),
    NativeCall(
        Waiting.SEMAPHORE, "a native semaphore, whose count is 0", "post it",
        r"(?:__new_)?sem_(?:timed|clock)?wait\w*|std::(?:\w+::)*counting_semaphore::\w*acquire\w*",
    ),
    NativeCall(
        Waiting.BARRIER, "the others to come to a native barrier", "come",
        r"_*pthread_barrier_wait|std::(?:\w+::)*(?:barrier|latch)::\w*wait\w*",
    ),
    NativeCall(
        Waiting.LOCK, "a read-write lock of native code", "release it",
        r"_*pthread_rwlock_\w*lock\w*|std::(?:\w+::)*shared_(?:timed_)?mutex::\w+|__glibcxx_rwlock_\w+",
    ),
    NativeCall(
        Waiting.CONDITION, "a notification of a condition variable of native code", "notify it",
        r"_*pthread_cond_\w*wait\w*|std::(?:\w+::)*condition_variable\w*::\w*wait\w*",
    ),
    NativeCall(Waiting.LOCK, "a mutex", "release it", r"_*pthread_mutex_\w*lock\w*|std::(?:\w+::)*mutex::lock"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def native_call(functions: tuple[str, ...]) -> NativeCall | None:
    """Return what native functions wait for: the first row decides that knows any of them."""
    rows = (row for row in NATIVE_CALLS for function in functions if re.fullmatch(row.function, function))
    return next(rows, None)


@lru_cache(maxsize=4096)
def _candidates(file: str, function: str) -> tuple[LibraryCall, ...]:
    path = file.replace("\\", "/")
    return tuple(
        row for row in ROWS if re.search(rf"(?:^|/)(?:{row.file})$", path) and re.fullmatch(row.function, function)
    )


def needs_class(frame: Frame) -> bool:
    """Return whether the class of a method tells what it waits for."""
    return any(row.owner for row in _candidates(frame.file or "", frame.method))


def library_call(frame: Frame, *, is_innermost: bool = False, natives: Sequence[str] = ()) -> LibraryCall | None:
    """Return what a Python frame of a library waits for, which is the innermost one of Python or not."""
    rows = [row for row in _candidates(frame.file or "", frame.method) if is_innermost or not row.is_innermost]
    rows = [row for row in rows if not row.inside or any(re.fullmatch(row.inside, name) for name in natives)]
    owner = owner_class(frame) if any(row.owner for row in rows) else ""
    return next((row for row in rows if not row.owner or re.fullmatch(row.owner, owner)), None)
