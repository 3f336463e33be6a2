from collections.abc import Iterator

import pytest

from ..thread_workers import ThreadWorkers


@pytest.fixture(scope="package")
def worlds() -> Iterator[dict[int, ThreadWorkers]]:
    """A world of two and a world of three workers, by size."""
    with ThreadWorkers("a", "b") as two, ThreadWorkers("a", "b", "c") as three:
        yield {2: two, 3: three}
