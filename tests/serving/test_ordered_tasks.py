import asyncio
from contextlib import aclosing

import pytest

from dragoman.serving.ordered_tasks import run_in_order


def test_results_come_in_order_with_few_in_progress_at_a_time():
    async def run() -> None:
        running, most_running = set[int](), 0

        async def work(number: int) -> int:
            nonlocal most_running
            running.add(number)
            most_running = max(most_running, len(running))
            for _ in range(20 - number):  # The later ones end sooner.
                await asyncio.sleep(0)
            running.remove(number)
            return number

        assert [each async for each in run_in_order(map(work, range(20)), 4)] == list(range(20))
        assert most_running == 4

    asyncio.run(run())


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_reader_that_stops_early_cancels_what_is_in_progress(wanted):
    async def run() -> None:
        ended, started = list[int](), list[int]()

        async def work(number: int) -> int:
            started.append(number)
            try:
                await asyncio.sleep(0 if number < wanted else 3600)
            finally:
                ended.append(number)
            return number

        async with aclosing(run_in_order(map(work, range(100)), 5)) as results:
            async for number in results:
                if number == wanted - 1:
                    break
        assert sorted(ended) == sorted(started)
        assert len(started) < 10

    asyncio.run(run())
