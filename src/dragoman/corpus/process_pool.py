"""A process pool that returns results in order and keeps memory bounded."""

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from dragoman.errors import DragomanError

P = ParamSpec("P")
R = TypeVar("R")
QUEUED_CALLS_PER_WORKER = 3


def _initialize_worker() -> None:
    """Leave Ctrl-C to the parent, and exit with it even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # Blocks of text have no reference cycles, and scanning millions of strings for them is slow.
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


class ProcessPool:
    """A pool of spawned worker processes."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, mp_context=context, initializer=_initialize_worker)
        self._max_queued = QUEUED_CALLS_PER_WORKER * count

    def __enter__(self) -> "ProcessPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[..., R], calls: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        """Results of `function(*call)` in the order of the calls. Only a few calls are queued ahead of the results."""
        pending: deque[Future[R]] = deque()
        try:
            for call in calls:
                pending.append(self._pool.submit(function, *call))
                if len(pending) >= self._max_queued:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise DragomanError(
                "A worker process was killed, probably out of memory: run the same command again with fewer --workers; "
                "it resumes."
            ) from None
