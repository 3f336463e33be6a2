"""Prefetching: an iterator that runs in a background thread."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class Prefetcher(Iterator[T]):
    """Runs an iterator in a thread, at most `max_ahead` items ahead. Exceptions are re-raised in the consumer."""

    def __init__(self, items: Iterator[T], max_ahead: int) -> None:
        self._ready: queue.Queue[tuple[T] | BaseException] = queue.Queue(max_ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(items,), daemon=True)
        self._thread.start()

    def _fill(self, items: Iterator[T]) -> None:
        try:
            for item in items:
                if not self._put((item,)):
                    return
            self._put(StopIteration())
        except Exception as error:  # Passed to the consumer, which runs in another thread.
            self._put(error)

    def _put(self, item: tuple[T] | BaseException) -> bool:
        """Wait until the queue has room; return False once the prefetcher is closed."""
        self._ready.put(item)
        return not self._closed.is_set()

    def __next__(self) -> T:
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item[0]

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            self._ready.get_nowait()  # If the thread waits for room, it ends now. It puts no second item.
        self._thread.join()
