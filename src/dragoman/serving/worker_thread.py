"""A thread for work on texts, beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class WorkerThread:
    """Runs functions one after the other. A second thread would not be faster, because of the GIL."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    def close(self) -> None:
        """Wait for the function that is running; those that wait are cancelled."""
        self._executor.shutdown(wait=True, cancel_futures=True)
