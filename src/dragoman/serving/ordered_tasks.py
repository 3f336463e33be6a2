"""Tasks whose results are wanted in order, with a few in progress at a time."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_in_order(work: Iterable[Coroutine[Any, Any, Result]], most: int) -> AsyncGenerator[Result, None]:
    """The results in order, each as soon as it and those before it are ready; at most `most` in progress.

    Coroutines are taken from `work` when they can start. Those in progress are cancelled if the reader stops early.
    """
    remaining = iter(work)
    tasks: deque[asyncio.Task[Result]] = deque()
    try:
        while True:
            while len(tasks) < most and (coroutine := next(remaining, None)) is not None:
                tasks.append(asyncio.create_task(coroutine))
            if not tasks:
                return
            yield await tasks[0]
            tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
