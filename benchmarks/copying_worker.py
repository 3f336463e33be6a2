"""A worker of `dragoman synthesize` that copies each line instead of translating it.

It takes the place of the real one in measurements of the coordinator, which would otherwise take days:
`python -m benchmarks.copying_worker` is started by `benchmarks.synthesis`.
"""

import os
import sys

from dragoman.decoding.line_translator import Candidate, Found
from dragoman.synthesis import shard_worker
from dragoman.synthesis.messages import MessageWriter
from dragoman.synthesis.shard_worker import EncodedShard, SearchedShard, ShardEngine


class CopyingEngine(ShardEngine):
    """Returns each line as its own translation."""

    def _search(self, shard: EncodedShard) -> list[Found]:  # noqa: ARG002
        return []

    def _decode(self, shard: SearchedShard) -> list[list[Candidate]]:
        return [[Candidate(line, -1.0)] for line in shard.lines]


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    shard_worker.ShardEngine = CopyingEngine  # type: ignore[misc]
    shard_worker.ShardWorker(sys.stdin.buffer, MessageWriter(replies)).run()


if __name__ == "__main__":
    main()
