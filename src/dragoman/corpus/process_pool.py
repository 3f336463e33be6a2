"""Work spread over processes, with results in order and memory bounded whatever the amount of work."""

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
QUEUED_PER_WORKER = 3


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even when it is killed and can say nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # Blocks of text make no cycles, and looking for some among millions of strings takes time.
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


class Workers:
    """A pool of processes."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, mp_context=context, initializer=_prepare_worker)
        self._queued = QUEUED_PER_WORKER * count

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[..., R], calls: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        """Results of `function(*call)`, in the order of the calls; only a few calls are drawn ahead."""
        pending: deque[Future[R]] = deque()
        try:
            for call in calls:
                pending.append(self._pool.submit(function, *call))
                if len(pending) >= self._queued:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise DragomanError(
                "A worker process was killed, probably for want of memory: run the same command again with fewer "
                "--workers; it goes on where it was."
            ) from None
