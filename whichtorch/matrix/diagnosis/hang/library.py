"""What the functions of libraries wait for, as data: one row for each way to wait that a user can call.

A wait shows as several frames of a library below the user's own line: `Condition.wait` in `Queue.get` in
`DataLoader.__next__`. The outermost of them that has a row says what the user waits for. A row names no lines of a
library, and a class only where functions of one name wait for different things.

The module is longer than others because it is a table, and its rows stay together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.hang.source_text import owner_class
from whichtorch.matrix.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.stacks import Frame


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A function of a library in which a thread waits, and who could end the wait."""

    waiting: Waiting
    file: str  # end of the path
    function: str  # pattern of the name without its class
    name: str  # as users call it; {function} is the function's own name
    what: str = ""  # that is waited for, after "for"; {object} is what the user calls it, [] holds what needs it
    ender: str = ""  # who could end it: "nobody is left that could <ender>"
    owner: str = ""  # pattern of the class; "" for any
    values: tuple[str, ...] = ()  # local variables, the first known of which names what is waited for
    is_of_manager: bool = False  # a process of multiprocessing answers on behalf of its objects
    is_exit: bool = False  # the interpreter calls it when the script has come to its end
    reason: str = ""  # why the wait may have no end, where nobody is seen who could end it
    is_frame_of_others: bool = False  # whatever runs inside it that waits says more
    inside: str = ""  # pattern of a native function inside it; "" for any
    is_innermost: bool = False  # the function waits itself: there is no frame of Python inside it


_C10D = "torch/distributed/distributed_c10d.py"
_STALE = "it waits as long as the file exists; if no build is under way, it was left behind, and may be removed"

PYTHON_CALLS = (
    LibraryCall(Waiting.THREAD, "threading.py", "join", "Thread.join"),
    LibraryCall(Waiting.THREAD, "threading.py", "_shutdown", "threading._shutdown", is_exit=True),
    LibraryCall(
        Waiting.EVENT, "threading.py", "wait", "Event.wait", "the event {object} to be set", "set it", owner="Event"
    ),
    LibraryCall(
        Waiting.BARRIER, "threading.py", "wait|_wait|_enter", "Barrier.wait",
        "the others to come to the barrier {object}",
        "come", owner="Barrier",
    ),
    LibraryCall(
        Waiting.SEMAPHORE, "threading.py", "acquire|__enter__", "Semaphore.acquire", "the semaphore {object}",
        "release it", owner=r"\w*Semaphore",
    ),
    LibraryCall(
        Waiting.CONDITION, "threading.py|multiprocessing/synchronize.py", "wait_for", "Condition.wait_for",
        "a notification of the condition {object}[ that makes {first} true]", "notify it",
    ),
    LibraryCall(
        Waiting.CONDITION, "threading.py", "wait", "Condition.wait", "a notification of the condition {object}",
        "notify it", owner="Condition|",
    ),
    LibraryCall(
        Waiting.QUEUE, "queue.py", "get", "Queue.get", "an item of the queue {object}, which is empty", "put one"
    ),
    LibraryCall(
        Waiting.QUEUE, "queue.py", "put", "Queue.put", "room in the queue {object}, which is full", "take an item out"
    ),
    LibraryCall(
        Waiting.QUEUE, "queue.py", "join", "Queue.join", "all items of the queue {object} to be marked as done",
        "call task_done",
    ),
    LibraryCall(
        Waiting.QUEUE, "multiprocessing/queues.py", "get", "Queue.get",
        "the lock of the reading end of the queue {object}", "release it", inside=r".*SemLock_acquire.*",
    ),
    LibraryCall(
        Waiting.QUEUE, "multiprocessing/queues.py", "get", "Queue.get", "an item of the queue {object}, which is empty",
        "put one",
    ),
    LibraryCall(
        Waiting.QUEUE, "multiprocessing/queues.py", "put", "Queue.put", "room in the queue {object}, which is full",
        "take an item out",
    ),
    LibraryCall(
        Waiting.QUEUE, "multiprocessing/queues.py", "join", "JoinableQueue.join",
        "all items of the queue {object} to be marked as done", "call task_done", owner="JoinableQueue",
    ),
    LibraryCall(
        Waiting.THREAD, "multiprocessing/queues.py", "join_thread|_finalize_join", "Queue.join_thread"
    ),
    LibraryCall(
        Waiting.EVENT, "multiprocessing/synchronize.py", "wait", "Event.wait", "the event {object} to be set", "set it",
        owner="Event",
    ),
    LibraryCall(
        Waiting.CONDITION, "multiprocessing/synchronize.py", "wait", "Condition.wait",
        "a notification of the condition {object}", "notify it", owner="Condition",
    ),
    LibraryCall(
        Waiting.SEMAPHORE, "multiprocessing/synchronize.py", "acquire|__enter__", "acquire",
        "the lock or semaphore {object}", "release it",
    ),
    LibraryCall(
        Waiting.PIPE, "multiprocessing/connection.py", "recv|recv_bytes|recv_bytes_into|poll", "Connection.{function}",
        "a message on the pipe {object}", "send one",
    ),
    LibraryCall(
        Waiting.PIPE, "multiprocessing/connection.py", "send|send_bytes", "Connection.{function}",
        "room in the pipe {object}, which is full", "read from it",
    ),
    LibraryCall(
        Waiting.SOCKET, "multiprocessing/connection.py", "accept", "Listener.accept", "a connection[ to {object}]",
        "connect"
    ),
    LibraryCall(
        Waiting.SOCKET, "multiprocessing/connection.py", "Client|SocketClient|answer_challenge|deliver_challenge",
        "multiprocessing.connection.Client", "an answer of the listener {end}", "answer",
    ),
    LibraryCall(Waiting.IO, "multiprocessing/connection.py", "wait", "multiprocessing.connection.wait"),
    LibraryCall(Waiting.CHILD, "multiprocessing/process.py", "join", "Process.join"),
    LibraryCall(
        Waiting.PIPE, "multiprocessing/process.py", "start", "Process.start",
        "the child to read what it is started with, of which its pipe is full", "read it",
    ),
    LibraryCall(
        Waiting.CHILD, "multiprocessing/util.py", "_exit_function", "the exit of multiprocessing", is_exit=True
    ),
    LibraryCall(
        Waiting.FUTURE, "multiprocessing/pool.py", "get|wait", "AsyncResult.{function}",
        "[{object}, ]the result of a task of a pool", "give it", owner=r"\w*Result",
    ),
    LibraryCall(
        Waiting.FUTURE, "multiprocessing/pool.py", "map|starmap|apply|next|__next__", "Pool.{function}",
        "the result of a task of the pool {object}", "give it",
    ),
    LibraryCall(Waiting.CHILD, "multiprocessing/pool.py", "join|__exit__|terminate|_terminate_pool", "Pool.{function}"),
    LibraryCall(
        Waiting.CHILD, "multiprocessing/managers.py", r"_callmethod|_create|_connect|start|__enter__|connect",
        "multiprocessing.Manager", "an answer of the manager's process[ about {object}]", "answer", is_of_manager=True,
    ),
    LibraryCall(
        Waiting.FUTURE, "concurrent/futures/_base.py", "result|exception", "Future.{function}",
        "the result of the future {object}", "set it",
    ),
    LibraryCall(
        Waiting.FUTURE, "concurrent/futures/_base.py", "wait|as_completed|__next__|result_iterator|_result_or_cancel",
        "concurrent.futures.{function}", "the futures to be done", "set their results",
    ),
    LibraryCall(
        Waiting.FUTURE, "concurrent/futures/_base.py|concurrent/futures/thread.py|concurrent/futures/process.py",
        "__exit__|shutdown", "Executor.shutdown", "the tasks of the pool {object} to end", "end them",
    ),
    LibraryCall(
        Waiting.THREAD, "concurrent/futures/thread.py|concurrent/futures/process.py", "_python_exit",
        "the exit of concurrent.futures", is_exit=True,
    ),
    LibraryCall(
        Waiting.CHILD, "subprocess.py",
        "wait|_wait|communicate|_communicate|run|call|check_call|check_output|_try_wait",
        "subprocess.{function}",
    ),
    LibraryCall(Waiting.PIPE, "subprocess.py", "__init__|_execute_child", "subprocess.Popen", "the program to start"),
    LibraryCall(
        Waiting.EVENT_LOOP, "asyncio/runners.py|asyncio/base_events.py", "run|run_until_complete|run_forever",
        "asyncio.{function}",
    ),
    LibraryCall(
        Waiting.LOCK, "logging/__init__.py",
        "acquire|_acquireLock|handle|callHandlers|_log|debug|info|warning|error|critical|exception|log", "logging",
        "the lock of a logging handler", "release it",
    ),
    LibraryCall(
        Waiting.LOCK, "<frozen importlib._bootstrap>|importlib/_bootstrap.py",
        "acquire|_lock_unlock_module|_find_and_load|__enter__|import_module", "import",
        "the import lock of module {object}", "end its import", values=("name", "fullname"),
    ),
    LibraryCall(Waiting.SOCKET, "socket.py", "accept", "socket.accept", "a client to connect", "connect"),
    LibraryCall(Waiting.SOCKET, "socket.py", "readinto", "", "data of the peer {end}", "send it"),
    LibraryCall(
        Waiting.SOCKET, "ssl.py|http/client.py|urllib/request.py",
        "read|recv|recv_into|getresponse|urlopen|request|connect|do_handshake", "{function}",
        "an answer of the server {end}", "answer",
    ),
    LibraryCall(
        Waiting.SOCKET, "socketserver.py", "serve_forever", "serve_forever", "a client to connect", "connect"
    ),
    LibraryCall(
        Waiting.EVENT, "socketserver.py", "shutdown", "shutdown", "the end of the server's serve_forever", "end it"
    ),
    LibraryCall(
        Waiting.FILE_LOCK, "filelock/_api.py|filelock/_unix.py|filelock/_soft.py", "acquire|__enter__",
        "FileLock.acquire",
        "the lock of the file {object}", "release it", values=("lock_filename", "lock_file", "path"),
    ),
)  # fmt: skip

TORCH_CALLS = (
    LibraryCall(
        Waiting.FUTURE, "torch/utils/data/dataloader.py", "__next__|_next_data|_get_data|_try_get_data|__iter__",
        "the iterator of the DataLoader", "a batch of its workers", "send one",
    ),
    LibraryCall(
        Waiting.CHILD, "torch/multiprocessing/spawn.py", "join|start_processes|spawn", "torch.multiprocessing.spawn"
    ),
    LibraryCall(
        Waiting.RENDEZVOUS, _C10D, "init_process_group|_store_based_barrier", "torch.distributed.init_process_group",
        "the other ranks to come",
    ),
    LibraryCall(
        Waiting.RENDEZVOUS, _C10D, "new_group|new_subgroups|new_subgroups_by_enumeration|split_group",
        "torch.distributed.{function}", "the other ranks to come",
    ),
    LibraryCall(
        Waiting.RENDEZVOUS, "torch/distributed/elastic/rendezvous/.*|torch/distributed/elastic/utils/store.py",
        "next_rendezvous|.*barrier|synchronize|get_all|.*rendezvous.*", "the rendezvous of torchrun",
        "the other nodes to come", reason="fewer nodes have come than the job was started for (--nnodes)",
    ),
    LibraryCall(
        Waiting.CHILD, "torch/distributed/run.py|torch/distributed/launcher/api.py|torch/distributed/elastic/agent/.*",
        "main|run|launch_agent|_invoke_run|_monitor_workers|_exit_barrier", "torchrun", is_frame_of_others=True,
    ),
    LibraryCall(
        Waiting.COLLECTIVE, _C10D, r"(?:send|isend)(?:_object_list)?", "torch.distributed.{function}",
        "a rank to receive"
    ),
    LibraryCall(
        Waiting.COLLECTIVE, _C10D, r"(?:recv|irecv)(?:_object_list)?", "torch.distributed.{function}", "a rank to send"
    ),
    LibraryCall(Waiting.COLLECTIVE, _C10D, r"[a-z]\w+", "torch.distributed.{function}"),
    LibraryCall(
        Waiting.COLLECTIVE, "torch/distributed/_functional_collectives.py|torch/distributed/nn/functional.py", r"\w+",
        "torch.distributed.{function}",
    ),
    LibraryCall(
        Waiting.COLLECTIVE, "torch/nn/parallel/distributed.py", r"\w+", "DistributedDataParallel.{function}",
    ),
    LibraryCall(
        Waiting.COLLECTIVE,
        "torch/distributed/(?:fsdp|_composable|tensor|checkpoint|algorithms|optim|pipelining|utils)[/.].*", r"\w+",
        "torch.distributed.{function}",
    ),
    LibraryCall(
        Waiting.FUTURE, "torch/distributed/rpc/.*",
        r"rpc_sync|remote|to_here|local_value|shutdown|_\w*wait\w*|wrapper|_invoke_rpc|rpc_async",
        "torch.distributed.rpc", "the answer of another worker", "answer",
    ),
    LibraryCall(
        Waiting.FUTURE, "torch/futures/__init__.py", "wait|value|wait_all|collect_all",
        "torch.futures.Future.{function}",
        "the result of the future {object}", "set it",
    ),
    LibraryCall(
        Waiting.FUTURE, "torch/_inductor/async_compile.py", r"wait|_wait_futures|result",
        "torch.compile's pool of workers", "the result of a compile worker", "give it",
    ),
    LibraryCall(
        Waiting.LOCK, "torch/_dynamo/convert_frame.py|torch/_dynamo/eval_frame.py", r"\w+", "torch.compile",
        "torch.compile's lock, which lets one thread compile at a time", "release it", is_innermost=True,
    ),
    LibraryCall(
        Waiting.FILE_LOCK, "torch/utils/_filelock.py", r"\w+", "FileLock.acquire", "the lock of the file {object}",
        "release it", values=("lock_filename", "lock_file", "path"),
    ),
    LibraryCall(
        Waiting.FILE, "torch/utils/file_baton.py", "wait", "FileBaton.wait",
        "the lock file {object} to disappear", "remove it",
        values=("lock_file_path",), reason=_STALE,
    ),
)  # fmt: skip
ROWS = (*PYTHON_CALLS, *TORCH_CALLS)


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A native function in which a thread waits, below Python code or without any."""

    waiting: Waiting
    function: str  # pattern of the name
    what: str = ""
    ender: str = ""
    name: str = ""  # as users call it, where the source of the caller does not tell
    is_seen: bool = True  # in a recording of a real program; else it is known from the names of functions only


# The first row of which a frame is found decides, whatever frames lie inside it.
NATIVE_CALLS = (
    NativeCall(
        Waiting.COLLECTIVE, r"c10d::Reducer::\w+",
        name="backward, in DistributedDataParallel's all_reduce of the gradients"
    ),
    NativeCall(Waiting.RENDEZVOUS, r"c10d::TCPStore::waitForWorkers", "the other ranks to come", name="TCPStore"),
    NativeCall(
        Waiting.RENDEZVOUS, r"c10d::(?:detail::)?(?:Prefix|File|Hash|TCP)?(?:Store|Client)\w*::\w+",
        "the key {object} of the store", "set it",
    ),
    NativeCall(
        Waiting.COLLECTIVE, r"c10d::(?:\w+::)*\w*[wW]ork\w*::(?:wait\w*|synchronize\w*)|gloo::\w+(?:::\w+)*",
        name="Work.wait"
    ),
    # What other backends than gloo and other versions of torch call their functions.
    NativeCall(Waiting.COLLECTIVE, r"c10d::\w+(?:::\w+)*", name="torch.distributed", is_seen=False),
    NativeCall(Waiting.QUEUE, r"_queue_SimpleQueue_get\w*", "an item of the queue {object}, which is empty", "put one"),
    NativeCall(
        Waiting.SEMAPHORE, r"_multiprocessing_SemLock_acquire\w*|semlock_acquire\w*|SemLock_acquire",
        "the lock or semaphore {object}", "release it",
    ),
    NativeCall(Waiting.FILE_LOCK, r"fcntl_(?:flock|lockf|fcntl)\w*", "the lock of the file {object}", "release it"),
    NativeCall(Waiting.SOCKET, r"sock_accept\w*", "a client to connect", "connect"),
    NativeCall(
        Waiting.SOCKET, r"sock_connect\w*|internal_connect", "the peer {end} to accept the connection", "accept it"
    ),
    NativeCall(Waiting.SOCKET, r"sock_send\w*", "the peer {end} to read", "read"),
    NativeCall(Waiting.SOCKET, r"sock_\w*recv\w*", "data of the peer {end}", "send it"),
    NativeCall(Waiting.IO, r"builtin_input\w*|PyFile_GetLine|PyOS_Readline\w*", "a line on stdin"),
    NativeCall(Waiting.EVENT, r"signal_(?:pause|sig\w*wait)\w*", "a signal"),
    NativeCall(Waiting.CHILD, r"os_wait\w*"),
    NativeCall(
        Waiting.FUTURE, r"c10::ivalue::Future::wait\w*|torch::jit::\w+::wait\w*",
        "the result of the future {object}", "set it"
    ),
    NativeCall(
        Waiting.DEVICE, r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize\w*|c10::cuda::\w*[sS]ynchronize\w*",
        is_seen=False,  # it takes a GPU
    ),
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
