"""What is said of real programs that hang, each of a kind that the library's rows know."""

from __future__ import annotations

from functools import cache

import pytest

from tests.diagnosis.expected_torch import EXPECTED_OF_TORCH
from tests.diagnosis.recorded import PROGRAMS, RECORDINGS, diagnosed, picture
from whichtorch.matrix.diagnosis.hang.hang_kind import HangKind
from whichtorch.matrix.diagnosis.hang.library import NATIVE_CALLS, ROWS, LibraryCall, NativeCall, library_call
from whichtorch.matrix.diagnosis.hang.thread_state import ThreadState

NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))
# Program: the kind, and what the sentence must say: the user's lines, what is waited for, why nobody ends it.
EXPECTED: dict[str, tuple[HangKind, tuple[str, ...]]] = {
    "queue_without_producer": (
        HangKind.QUEUE,
        ("Queue.get (queue_without_producer.py:16)", "`numbers`, which is empty", "nobody is left that could put one"),
    ),
    "condition_held_elsewhere": (
        HangKind.EVENT,
        (
            'for the lock `ready`, which thread "publisher" has held since line 17',
            "Event.wait (condition_held_elsewhere.py:18) for the event `uploaded` to be set",
        ),
    ),
    "accept_of_failed_client": (
        HangKind.SOCKET,
        (
            "socket.accept (accept_of_failed_client.py:16)",
            "nobody is left that could connect",
            "has ended with AttributeError",
        ),
    ),
    "answer_from_terminal": (
        HangKind.IO,
        (
            "input (answer_from_terminal.py:7)",
            "only this process itself has the other end open",
        ),
    ),
    "async_child_with_full_pipe": (
        HangKind.EVENT_LOOP,
        (
            "asyncio.run (async_child_with_full_pipe.py:13)",
            "which is full",
            "each waits for the other",
        ),
    ),
    "async_event_of_failed_task": (
        HangKind.EVENT_LOOP,
        (
            "asyncio.run_until_complete (async_event_of_failed_task.py:20)",
            "`serve` awaits `is_warm.wait()` (line 15)",
            "event loop is idle",
        ),
    ),
    "async_gather_of_locks": (
        HangKind.EVENT_LOOP,
        (
            "asyncio.run (async_gather_of_locks.py:26)",
            "`settle` awaits `asyncio.gather(transfer(first, second, 5), trans…` (line 21)",
            "`transfer` awaits `source.turn` (line 12)",
            "event loop is idle",
        ),
    ),
    "async_iterator_of_silent_pipe": (
        HangKind.EVENT_LOOP,
        (
            "asyncio.run (async_iterator_of_silent_pipe.py:14)",
            "each waits for the other",
        ),
    ),
    "async_queue_of_failed_worker": (
        HangKind.EVENT_LOOP,
        (
            "asyncio.run (async_queue_of_failed_worker.py:22)",
            "`main` awaits `jobs.join()` (line 18)",
            "event loop is idle",
        ),
    ),
    "blocking_get_in_coroutine": (
        HangKind.QUEUE,
        (
            "Queue.get (blocking_get_in_coroutine.py:15)",
            "for an item of the queue `batches",
            "which is empty",
            "event loop's own thread",
            "nobody is left that could put one",
        ),
    ),
    "both_ends_send": (
        HangKind.PIPE,
        (
            "Connection.send_bytes (both_ends_send.py:7)",
            "which is full",
            "each waits for the other",
        ),
    ),
    "both_sides_send_all": (
        HangKind.SOCKET,
        (
            "client.sendall (both_sides_send_all.py:19)",
            "peer.sendall (both_sides_send_all.py:13)",
            "each waits for the other",
        ),
    ),
    "child_never_starts": (
        HangKind.PIPE,
        (
            "subprocess.Popen (child_never_starts.py:13)",
            "os.read (child_never_starts.py:10)",
            "for data from `reading",
            "each waits for the other",
        ),
    ),
    "child_outlives_script": (
        HangKind.QUEUE,
        (
            "at the interpreter's exit",
            "Queue.get (child_outlives_script.py:7)",
            "for an item of the queue `jobs",
            "which is empty",
            "nobody is left that could put one",
        ),
    ),
    "child_waited_before_fed": (
        HangKind.CHILD,
        (
            "os.waitpid (child_waited_before_fed.py:13)",
            "pipe.read (child_waited_before_fed.py:10)",
            "for data from `pipe",
            "each waits for the other",
        ),
    ),
    "client_of_silent_listener": (
        HangKind.SOCKET,
        (
            "multiprocessing.connection.Client (client_of_silent_listener.py:7)",
            "only this process itself has the other end open",
        ),
    ),
    "connect_to_full_backlog": (
        HangKind.SOCKET,
        (
            "client.connect (connect_to_full_backlog.py:10)",
            "only this process itself has the other end open",
        ),
    ),
    "consumer_left_early": (
        HangKind.QUEUE,
        (
            "Thread.join (consumer_left_early.py:26)",
            "Queue.put (consumer_left_early.py:9)",
            "for room in the queue `batches",
            "which is full",
            "nobody is left that could take an item out",
        ),
    ),
    "done_callback_wants_lock": (
        HangKind.EVENT,
        (
            "Event.wait (done_callback_wants_lock.py:22)",
            "for the event `stored",
            "nobody else runs that could set it",
            "waits (done_callback_wants_lock.py:12)",
            "for the lock `results_lock",
            "since line 20",
        ),
    ),
    "executor_at_exit": (
        HangKind.EVENT,
        (
            "at the interpreter's exit",
            "Event.wait (executor_at_exit.py:14)",
            "for the event `self.stop",
            "nobody is left that could set it",
        ),
    ),
    "executor_future_in_coroutine": (
        HangKind.FUTURE,
        (
            "Future.result (executor_future_in_coroutine.py:18)",
            "for the result of the future `pool.submit",
            "Future.result (executor_future_in_coroutine.py:12)",
            "for the result of the future `asyncio.run_coroutine_threadsafe",
            "each waits for the other",
        ),
    ),
    "exit_hook_waits_for_future": (
        HangKind.FUTURE,
        (
            "at the interpreter's exit",
            "Future.result (exit_hook_waits_for_future.py:13)",
            "for the result of the future `self.uploaded",
            "nobody is left that could set it",
        ),
    ),
    "fifo_without_writer": (
        HangKind.PIPE,
        (
            "waits (fifo_without_writer.py:9)",
            "the named pipe `commands`",
            "nobody is left that could end the wait",
        ),
    ),
    "file_lock_of_child": (
        HangKind.QUEUE,
        (
            "FileLock.acquire (file_lock_of_child.py:22)",
            "for the lock of",
            "Queue.get (file_lock_of_child.py:13)",
            "for an item of the queue `jobs",
            "which is empty",
            "nobody is left that could put one",
        ),
    ),
    "file_locked_by_itself": (
        HangKind.FILE_LOCK,
        (
            "fcntl.flock (file_locked_by_itself.py:12)",
            "for the lock of",
            "this process has locked the file itself",
        ),
    ),
    "finalizer_joins_thread": (
        HangKind.EVENT,
        (
            "in a finalizer",
            "Thread.join (finalizer_joins_thread.py:13)",
            "for the event to",
            "nobody is left that could set it",
        ),
    ),
    "forked_by_hand": (
        HangKind.FORKED_LOCK,
        (
            "waits (forked_by_hand.py:20)",
            "for the lock `cache_lock",
            "fork copies a lock",
        ),
    ),
    "handler_waits_for_logger": (
        HangKind.LOCK_CYCLE,
        (
            "Thread.join (handler_waits_for_logger.py:11)",
            "logging (handler_waits_for_logger.py:15)",
            "for the lock of",
            "which the main thread holds",
            "each waits for the other",
        ),
    ),
    "http_server_never_answers": (
        HangKind.SOCKET,
        (
            "urlopen (http_server_never_answers.py:19)",
            "connection.recv (http_server_never_answers.py:13)",
            "each waits for the other",
        ),
    ),
    "joinable_queue_unfinished": (
        HangKind.QUEUE,
        (
            "JoinableQueue.join (joinable_queue_unfinished.py:18)",
            "nobody is left that could call task_done",
            "has ended (exit code 0)",
        ),
    ),
    "killed_while_it_holds_queue": (
        HangKind.QUEUE,
        (
            "Queue.get (killed_while_it_holds_queue.py:10)",
            "for the lock of",
            "nobody is left that could release it",
        ),
    ),
    "line_of_socket_file": (
        HangKind.SOCKET,
        (
            "self.lines.readline (line_of_socket_file.py:12)",
            "only this process itself has the other end open",
        ),
    ),
    "lines_of_silent_child": (
        HangKind.PIPE,
        (
            "waits (lines_of_silent_child.py:8)",
            "for data from `calculator.stdout",
            "each waits for the other",
        ),
    ),
    "listener_without_client": (
        HangKind.SOCKET,
        (
            "Listener.accept (listener_without_client.py:15)",
            "nobody is left that could connect",
        ),
    ),
    "loader_lock_in_decorator": (
        HangKind.LOCK_CYCLE,
        (
            "waits (loader_lock_in_decorator.py:12)",
            "for the lock `_state_lock",
            "since line 12",
            "it waits for itself",
        ),
    ),
    "lock_held_across_await": (
        HangKind.LOCK_CYCLE,
        (
            "asyncio.run (lock_held_across_await.py:20)",
            "waits (lock_held_across_await.py:12)",
            "for the lock `self.lock",
            "the coroutine `infer` (line 17) awaits while it holds",
            "each waits for the other",
        ),
    ),
    "lock_in_context_manager": (
        HangKind.LOCK_CYCLE,
        (
            "Thread.join (lock_in_context_manager.py:30)",
            "waits (lock_in_context_manager.py:14)",
            "for the lock `self._mutex",
            "since line 27",
            "each waits for the other",
        ),
    ),
    "lock_of_ended_thread": (
        HangKind.LOCK_CYCLE,
        (
            "waits (lock_of_ended_thread.py:9)",
            "for the lock `locks",
            "no other thread could release it",
            "has ended with ZeroDivisionError",
        ),
    ),
    "loop_never_started": (
        HangKind.FUTURE,
        (
            "Future.result (loop_never_started.py:10)",
            "for the result of the future `future",
            "no thread of the process runs an event loop",
            "nobody is left that could set it",
        ),
    ),
    "loop_thread_asks_main": (
        HangKind.QUEUE,
        (
            "Future.result (loop_thread_asks_main.py:17)",
            "for the result of the future `asyncio.run_coroutine_threadsafe",
            "Queue.get (loop_thread_asks_main.py:14)",
            "for an item of the queue `replies",
            "which is empty",
            "event loop's own thread",
            "nobody is left that could put one",
        ),
    ),
    "managed_lock_not_released": (
        HangKind.LOCK,
        (
            "multiprocessing.Manager (managed_lock_not_released.py:18)",
            "nobody is left that could release it",
        ),
    ),
    "own_end_kept_open": (
        HangKind.PIPE,
        (
            "Connection.recv (own_end_kept_open.py:10)",
            "only this process itself has the other end open",
        ),
    ),
    "permit_not_returned": (
        HangKind.SEMAPHORE,
        (
            "Semaphore.acquire (permit_not_returned.py:9)",
            "for the semaphore `permits",
            "nobody is left that could release it",
        ),
    ),
    "pool_joined_with_task": (
        HangKind.CHILD,
        (
            "Pool.join (pool_joined_with_task.py:17)",
            "Connection.recv (pool_joined_with_task.py:8)",
            "each waits for the other",
        ),
    ),
    "pool_of_processes_at_exit": (
        HangKind.FUTURE,
        (
            "Executor.shutdown (pool_of_processes_at_exit.py:13)",
            "Connection.recv (pool_of_processes_at_exit.py:8)",
            "each waits for the other",
        ),
    ),
    "pool_worker_killed": (
        HangKind.FUTURE,
        (
            "Pool.map (pool_worker_killed.py:16)",
            "no worker of the pool is at a task",
        ),
    ),
    "predicate_never_true": (
        HangKind.CONDITION,
        (
            "Condition.wait_for (predicate_never_true.py:18)",
            "for a notification of the condition `self.changed",
            "nobody is left that could notify it",
        ),
    ),
    "process_barrier_too_large": (
        HangKind.BARRIER,
        (
            "Barrier.wait (process_barrier_too_large.py:7)",
            "nobody else runs that could come",
            "waits there, too",
        ),
    ),
    "process_condition_lost": (
        HangKind.CONDITION,
        (
            "Condition.wait (process_condition_lost.py:8)",
            "for a notification of the condition `fresh",
            "nobody is left that could notify it",
        ),
    ),
    "process_event_never_set": (
        HangKind.EVENT,
        (
            "AsyncResult.get (process_event_never_set.py:21)",
            "Event.wait (process_event_never_set.py:12)",
            "for the event `start",
            "nobody else runs that could set it",
            "waits there, too",
        ),
    ),
    "process_lock_taken_twice": (
        HangKind.LOCK_CYCLE,
        (
            "acquire (process_lock_taken_twice.py:12)",
            "for the lock or",
            "since line 16",
            "it waits for itself",
        ),
    ),
    "process_pool_never_shut_down": (
        HangKind.SEMAPHORE,
        (
            "at the interpreter's exit",
            "waits (process_pool_never_shut_down.py:11)",
            "for the lock or",
            "nobody is left that could release it",
        ),
    ),
    "producer_pool_in_comprehension": (
        HangKind.FUTURE,
        (
            "concurrent.futures.wait (producer_pool_in_comprehension.py:21)",
            "Future.result (producer_pool_in_comprehension.py:11)",
            "for the result of the future `futures",
            "Future.result (producer_pool_in_comprehension.py:15)",
            "each waits for the other",
        ),
    ),
    "queue_joined_at_exit": (
        HangKind.QUEUE,
        (
            "at the interpreter's exit",
            "nobody is left that could call task_done",
            "has ended with TypeError",
        ),
    ),
    "queue_of_failed_consumer": (
        HangKind.QUEUE,
        (
            "Queue.put (queue_of_failed_consumer.py:18)",
            "for room in the queue `self.batches",
            "which is full",
            "nobody is left that could take an item out",
            "has ended (exit code 1)",
            "has ended with ZeroDivisionError",
        ),
    ),
    "ready_of_many_connections": (
        HangKind.IO,
        (
            "multiprocessing.connection.wait (ready_of_many_connections.py:18)",
            "Connection.recv (ready_of_many_connections.py:8)",
            "each waits for the other",
        ),
    ),
    "result_in_own_loop": (
        HangKind.FUTURE,
        (
            "Future.result (result_in_own_loop.py:16)",
            "for the result of the future `asyncio.run_coroutine_threadsafe",
            "event loop's own thread",
            "nobody is left that could set it",
        ),
    ),
    "select_on_own_pipe": (
        HangKind.PIPE,
        (
            "select.select (select_on_own_pipe.py:12)",
            "only this process itself has the other end open",
        ),
    ),
    "server_shut_down_by_handler": (
        HangKind.EVENT,
        (
            "Thread.join (server_shut_down_by_handler.py:18)",
            "shutdown (server_shut_down_by_handler.py:11)",
            "it waits for itself",
        ),
    ),
    "server_without_clients": (
        HangKind.SOCKET,
        (
            "serve_forever (server_without_clients.py:11)",
            "nobody is left that could connect",
        ),
    ),
    "signal_handler_wants_lock": (
        HangKind.LOCK_CYCLE,
        (
            "waits (signal_handler_wants_lock.py:14)",
            "for the lock `self.guard",
            "since line 18",
            "it waits for itself",
        ),
    ),
    "simple_queue_of_replies": (
        HangKind.QUEUE,
        (
            "replies.get (simple_queue_of_replies.py:17)",
            "for an item of the queue `replies",
            "which is empty",
            "nobody else runs that could put one",
            "requests.get (simple_queue_of_replies.py:10)",
            "for an item of the queue `requests",
        ),
    ),
    "skipped_task_done": (
        HangKind.QUEUE,
        (
            "Queue.join (skipped_task_done.py:25)",
            "nobody else runs that could call task_done",
            "Queue.get (skipped_task_done.py:14)",
            "for an item of the queue `self.jobs",
            "which is empty",
        ),
    ),
    "spawned_child_failed_to_start": (
        HangKind.PIPE,
        (
            "Process.start (spawned_child_failed_to_start.py:12)",
            "only this process itself has the other end open",
            "has ended (exit code 1)",
        ),
    ),
    "stdin_left_open": (
        HangKind.PIPE,
        (
            "self.process.stdout.readline (stdin_left_open.py:15)",
            "for data from `self.process.stdout",
            "for data from stdin",
            "each waits for the other",
        ),
    ),
    "stopped_child_of_subprocess": (HangKind.EVENT, ("subprocess.wait (stopped_child_of_subprocess.py:9)",)),
    "stream_of_own_pipe": (
        HangKind.PIPE,
        (
            "waits (stream_of_own_pipe.py:8)",
            "for data from `numbers",
            "only this process itself has the other end open",
        ),
    ),
    "task_waits_for_own_pool": (
        HangKind.FUTURE,
        (
            "concurrent.futures.result_iterator (task_waits_for_own_pool.py:17)",
            "concurrent.futures.as_completed (task_waits_for_own_pool.py:14)",
            "a worker of a pool itself",
        ),
    ),
    "tee_of_grandchild": (
        HangKind.PIPE,
        (
            "subprocess.check_output (tee_of_grandchild.py:5)",
            "for data from the",
            "(sleep)",
        ),
    ),
    "thread_imports_unfinished_module": (
        HangKind.LOCK_CYCLE,
        (
            "Thread.join (registry.py:16)",
            "import (registry.py:9)",
            "for the import lock of module parts.registry",
            "which the main thread holds",
            "each waits for the other",
        ),
    ),
    "thread_outlives_script": (
        HangKind.SOCKET,
        (
            "at the interpreter's exit",
            "socket.accept (thread_outlives_script.py:10)",
            "nobody is left that could connect",
        ),
    ),
    "threads_join_each_other": (
        HangKind.THREAD,
        (
            "at the interpreter's exit",
            "Thread.join (threads_join_each_other.py:10)",
            "Thread.join (threads_join_each_other.py:15)",
            "each waits for the other",
        ),
    ),
    "unread_queue_at_exit": (
        HangKind.PIPE,
        (
            "at the interpreter's exit",
            "which is full",
            "only this process itself has the other end open",
        ),
    ),
    "weak_finalizer_wants_lock": (
        HangKind.LOCK_CYCLE,
        (
            "at the interpreter's exit",
            "in a finalizer",
            "finalizer (weak_finalizer_wants_lock.py:14)",
            "for the lock `guard",
            "no other thread could release it",
        ),
    ),
    "worker_failed_before_barrier": (
        HangKind.BARRIER,
        (
            "Barrier.wait (worker_failed_before_barrier.py:19)",
            "nobody else runs that could come",
            "Barrier.wait (worker_failed_before_barrier.py:13)",
            "has ended with TypeError",
        ),
    ),
    "wrong_event_set": (
        HangKind.EVENT,
        (
            "Event.wait (wrong_event_set.py:15)",
            "for the event `phase",
            "nobody is left that could set it",
        ),
    ),
}


EXPECTED |= EXPECTED_OF_TORCH


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_says_where_what_and_why(name: str) -> None:
    """Each program's hang has its kind, and the sentence names the user's lines, the thing and the reason."""
    kind, fragments = EXPECTED[name]
    found = diagnosed(name)
    assert found.kind is kind
    assert [fragment for fragment in fragments if fragment not in found.summary] == [], found.summary


def test_every_program_is_recorded_and_expected() -> None:
    """No program lies about without a recording, no recording without its program and what is expected of it."""
    assert NAMES == sorted(path.stem for path in PROGRAMS.glob("*.py")) == sorted(EXPECTED)


@pytest.mark.parametrize("row", [*ROWS, *NATIVE_CALLS], ids=lambda row: f"{row.name or row.what}-{row.function}"[:60])
def test_every_row_of_the_library_is_met_in_a_real_run(row: LibraryCall | NativeCall) -> None:
    """What a row claims of a library has been seen in a real program that hangs there."""
    if isinstance(row, NativeCall) and not row.is_seen:
        pytest.skip("known by the name of a function only; record a hang in it to run this test")
    assert row in _met()


@cache
def _met() -> set[LibraryCall | NativeCall]:
    met = set[LibraryCall | NativeCall]()
    for name in NAMES:
        for process in picture(name)[0]:
            for thread in process.threads:
                user = ThreadState(process, thread).user
                met.update(filter(None, (user.call, user.native)))
                met.update(row for frame in user.frames if (row := library_call(frame)) and row.is_exit)
    return met
