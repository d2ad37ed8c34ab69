"""What must be said of programs in which torch or native code waits: kind, and parts of the sentence."""

from whichtorch.matrix.diagnosis.hang.hang_kind import HangKind

EXPECTED_OF_TORCH: dict[str, tuple[HangKind, tuple[str, ...]]] = {
    # Ranks of a distributed job.
    "group_of_some": (
        HangKind.COLLECTIVE,
        ("rank 0 waits", "called from group_of_some.py:22", "ranks 1 and 2 wait", "called from group_of_some.py:23"),
    ),
    "rank_computes": (
        HangKind.COLLECTIVE,
        (
            "ranks 0 and 1 wait in torch.distributed.all_reduce (rank_computes.py:18)",
            "(rank_computes.py:17)",
            "rank 2 is not there, and the others wait for it",
        ),
    ),
    "halo_exchange": (
        HangKind.COLLECTIVE,
        (
            "ranks 0-2 wait in Work.wait (halo_exchange.py:20) for dist.batch_isend_irecv of line 13",
            "each waits for another rank, and what they send is not what the others receive",
        ),
    ),
    "heartbeat_thread": (
        HangKind.COLLECTIVE,
        (
            'thread "heartbeat" of rank 0 waits in torch.distributed.all_reduce (heartbeat_thread.py:20)',
            "rank 1 waits in torch.distributed.barrier (heartbeat_thread.py:32)",
            'thread "heartbeat" has ended with OSError: no space left',
        ),
    ),
    "killed_before_key": (
        HangKind.RENDEZVOUS,
        (
            "child 30061 waits in store.wait (killed_before_key.py:22) for the key `['vocabulary']`",
            "was killed by SIGKILL",
        ),
    ),
    "late_metrics": (
        HangKind.COLLECTIVE,
        (
            "rank 0 waits in torch.distributed.reduce (late_metrics.py:39)",
            'rank 1 waits (late_metrics.py:25) for the lock `self.guard`, which thread "metrics-writer" of rank 1',
            "Queue.get (late_metrics.py:21) for an item of the queue `self.lines`, which is empty",
        ),
    ),
    "rank_too_few": (
        HangKind.RENDEZVOUS,
        ("init_process_group (rank_too_few.py:12)", "2 of 3 ranks are here, and rank 2 has not come"),
    ),
    "stopped_rank": (
        HangKind.COLLECTIVE,
        (
            "ranks 0 and 2 wait in Work.wait (stopped_rank.py:18) for dist.reduce_scatter of line 17",
            "rank 1 is stopped by a signal (stopped_rank.py:14)",
        ),
    ),
    "torchrun_loader": (
        HangKind.COLLECTIVE,
        (
            "rank 0 waits in torch.distributed.all_reduce (torchrun_loader.py:33)",
            "rank 1 waits in the iterator of the DataLoader (torchrun_loader.py:32)",
            "(torchrun_loader.py:22), again and again while `not os.path.exists(self.paths[index])`",
        ),
    ),
    "weights_of_trainer": (
        HangKind.RENDEZVOUS,
        (
            "exchange.store.wait (weights_of_trainer.py:24) for the key `['evaluated']`",
            "self.store.get (weights_of_trainer.py:18)",
            "none of them sets what another waits for",
        ),
    ),
    "wrapped_on_main": (
        HangKind.COLLECTIVE,
        (
            "rank 0 waits in DistributedDataParallel (wrapped_on_main.py:15)",
            "rank 1 waits in torch.distributed.barrier (wrapped_on_main.py:24)",
            "not in the same call",
        ),
    ),
    "answer_by_rpc": (
        HangKind.FUTURE,
        ("torch.distributed.rpc (answer_by_rpc.py:28)", "Event.wait (answer_by_rpc.py:19) for the event `is_ready`"),
    ),
    "best_checkpoint": (
        HangKind.COLLECTIVE,
        (
            "rank 0 waits in torch.distributed.all_gather_object (best_checkpoint.py:18)",
            "ranks 1 and 2 wait in torch.distributed.broadcast (best_checkpoint.py:30)",
            "not in the same call",
        ),
    ),
    "expert_not_called": (
        HangKind.COLLECTIVE,
        (
            "rank 0 waits in DistributedDataParallel.forward (expert_not_called.py:23)",
            "rank 1 waits in torch.distributed.all_gather (expert_not_called.py:28)",
        ),
    ),
    "group_made_alone": (
        HangKind.COLLECTIVE,
        (
            "rank 0 waits in torch.distributed.new_group (group_made_alone.py:16) for the other ranks to come",
            "rank 1 waits in torch.distributed.recv (group_made_alone.py:19) for a rank to send",
        ),
    ),
    "pipeline_stages": (
        HangKind.COLLECTIVE,
        ("ranks 0 and 1 wait in torch.distributed.send (pipeline_stages.py:16)", "none of them does"),
    ),
    "second_node_missing": (
        HangKind.RENDEZVOUS,
        ("the rendezvous of torchrun (second_node_missing.py:15) for the other nodes to come", "(--nnodes)"),
    ),
    "sharded_norm": (
        HangKind.COLLECTIVE,
        (
            "rank 0 waits in torch.distributed.full_tensor (sharded_norm.py:16)",
            "rank 1 waits in torch.distributed",
            "(sharded_norm.py:18)",
            "rank 2 waits in torch.distributed.barrier (sharded_norm.py:26)",
        ),
    ),
    "gradient_future": (
        HangKind.FUTURE,
        ("torch.futures.Future.wait (gradient_future.py:23)", '"compressor" has ended with KeyError'),
    ),
    "endless_compiler": (
        HangKind.CHILD,
        ("compiles (endless_compiler.py:23)", "waits for the compiler `/bin/sh", "g++`", "`sleep`", "sleeps"),
    ),
    "compiler_of_pool": (
        HangKind.CHILD,
        ("the main thread compiles (compiler_of_pool.py:25)", "the compiler `/bin/sh", "g++`", "`sleep`", "sleeps"),
    ),
    "kernels_built_twice": (
        HangKind.FILE,
        ("FileBaton.wait (kernels_built_twice.py:16) for the lock file of `baton` to disappear", "may be removed"),
    ),
    "lost_compile_pool": (
        HangKind.FUTURE,
        ("Future.result (lost_compile_pool.py:10)", "which pool.submit gave in line 8", "sleeps"),
    ),
    "shared_kernel_cache": (
        HangKind.STOPPED,
        (
            "FileLock.acquire (shared_kernel_cache.py:17) for the lock of the file",
            "kernels.lock, which child",
            "SIGCONT",
        ),
    ),
    "forked_parallel_sum": (
        HangKind.FORK_AFTER_THREADS,
        (
            "waits in OpenMP (forked_parallel_sum.py:20) for threads that fork did not copy",
            "(forked_parallel_sum.py:17)",
        ),
    ),
    # Workers of a DataLoader.
    "collate_under_lock": (
        HangKind.SEMAPHORE,
        (
            "(collate_under_lock.py:13)",
            "`self.lock`",
            "has held `vocabulary` since collate_under_lock.py:25",
            "if that is",
        ),
    ),
    "curriculum_sampler": (
        HangKind.QUEUE,
        ("Queue.get (curriculum_sampler.py:15)", "`self.order`, which is empty", "nobody is left"),
    ),
    "decoder_in_worker": (
        HangKind.CHILD,
        (
            "DataLoader worker 0",
            "(decoder_in_worker.py:15) for the end of child",
            "room in its stdout, a pipe, which is full",
        ),
    ),
    "named_pipe_stream": (
        HangKind.PIPE,
        ("DataLoader worker 0", "(named_pipe_stream.py:14)", "to open the other end of the named pipe `self.path`"),
    ),
    "paused_worker": (HangKind.STOPPED, ("DataLoader worker", "stopped by a signal (paused_worker.py:15)", "SIGCONT")),
    "prefetch_ahead": (
        HangKind.QUEUE,
        (
            "Thread.join (prefetch_ahead.py:25)",
            "Queue.put (prefetch_ahead.py:18)",
            "full",
            "the main thread only waits for this",
        ),
    ),
    "remote_samples": (
        HangKind.SOCKET,
        ("connection.recv (remote_samples.py:25)", '"sample server" waits in socket.accept'),
    ),
    "seeded_together": (
        HangKind.BARRIER,
        ("Barrier.wait (seeded_together.py:22)", "`gate`", "DataLoader worker 1", "waits there, too"),
    ),
    # Backward, its hooks and functions.
    "frozen_layer": (
        HangKind.CONDITION,
        ("Condition.wait_for (frozen_layer.py:23)", "`self.condition`", "nobody is left"),
    ),
    "gradients_to_writer": (
        HangKind.QUEUE,
        (
            "Queue.put (gradients_to_writer.py:20)",
            "`gradients`, which is full",
            '"gradient-writer" has ended with OSError',
        ),
    ),
    "offloaded_tensors": (
        HangKind.FUTURE,
        ("Future.result (offloaded_tensors.py:16)", "`pool.submit(tensor.clone)`", "it is a worker of a pool itself"),
    ),
    "recomputed_under_lock": (
        HangKind.LOCK_CYCLE,
        ("(recomputed_under_lock.py:17) for the semaphore `memory`, which the same thread has held since line 27",),
    ),
    "two_models_backward": (
        HangKind.LOCK_CYCLE,
        ("(two_models_backward.py:21) for the lock `locks[ctx.other]`", "has held `locks[ctx.mine]` since", '"critic"'),
    ),
    # Compilation.
    "compile_and_weights": (
        HangKind.LOCK_CYCLE,
        (
            "torch.compile (compile_and_weights.py:31) for torch.compile's lock",
            '"warmup" waits (compile_and_weights.py:13) for the lock `weights`, which the main thread has held',
            "each waits for the other",
        ),
    ),
    "service_backend": (
        HangKind.QUEUE,
        ("(service_backend.py:23)", "`results`, which is empty", '"codegen" has ended with NotImplementedError: sin'),
    ),
    # Native code.
    "callback_wants_lock": (
        HangKind.LOCK_CYCLE,
        (
            "(callback_wants_lock.py:44, solver.cpp:13)",
            "(callback_wants_lock.py:38) for the lock `self.progress`",
            "each waits",
        ),
    ),
    "gil_kept_in_wait": (
        HangKind.GIL_CYCLE,
        ("(gil_kept_in_wait.py:39) waits for the GIL", "job_wait (gil_kept_in_wait.py:45)"),
    ),
    "native_barrier": (
        HangKind.BARRIER,
        ("meeting.meeting_wait (native_barrier.py:26, meeting.cpp:5)", "native barrier", '"stage_1" waits there, too'),
    ),
    "native_ring_buffer": (
        HangKind.CONDITION,
        ("ring.ring_pop (native_ring_buffer.py:47, ring.cpp:15)", "condition variable", "nobody is left"),
    ),
    "native_semaphore": (
        HangKind.SEMAPHORE,
        ("buffers_take (native_semaphore.py:28, buffers.cpp:5) for a native semaphore", "nobody is left"),
    ),
    "native_spin": (HangKind.SPIN_NATIVE, ("spin_until_ready (flag.cpp:", "native_spin.py:27")),
    "promise_not_kept": (
        HangKind.FUTURE,
        ("evaluator.evaluate (promise_not_kept.py:35, evaluate.cpp:13)", "C++ future", "nobody is left"),
    ),
    "reentrant_callback": (
        HangKind.LOCK_CYCLE,
        (
            "(reentrant_callback.py:44), in Registry::size (registry.cpp:",
            "a mutex, which the same thread holds already",
            "called at reentrant_callback.py:47",
        ),
    ),
    "upgraded_lock": (
        HangKind.LOCK_CYCLE,
        ("(upgraded_lock.py:27, table.cpp:9) for a read-write lock", "this thread has taken it before"),
    ),
}
