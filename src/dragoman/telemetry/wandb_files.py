"""Files that Weights & Biases writes offline: a log of records in the framing of LevelDB, one file for each session.

wandb has no function that reads them.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

FILE_HEADER_BYTES = 7
BLOCK_BYTES = 32768
RECORD_HEADER = struct.Struct("<IHB")
"""Checksum, length and kind of a part of a record."""
FULL, FIRST, LAST = 1, 2, 4


def last_offline_step(folder: Path, run_id: str) -> int:
    """The last step that earlier sessions have written to their files in this folder; -1 if there are none."""
    return max((step for path in offline_files(folder, run_id) for step in read_steps(path)), default=-1)


def offline_files(folder: Path, run_id: str) -> list[Path]:
    return sorted(folder.glob(f"wandb/*run-*-{run_id}/run-{run_id}.wandb"))


def read_steps(path: Path) -> Iterator[int]:
    """The steps in a file, in order."""
    from wandb.proto.wandb_internal_pb2 import Record

    for content in _records(path.read_bytes()):
        record = Record.FromString(content)
        if record.WhichOneof("record_type") == "history":
            yield record.history.step.num


def _records(content: bytes) -> Iterator[bytes]:
    """The complete records of a file. The last one of a session that was killed may be cut off."""
    position, record = FILE_HEADER_BYTES, b""
    while position + RECORD_HEADER.size <= len(content):
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < RECORD_HEADER.size:  # No header fits: the rest of the block is padding.
            position += left
            continue
        _, length, kind = RECORD_HEADER.unpack_from(content, position)
        begin = position + RECORD_HEADER.size
        position = begin + length
        if kind == 0 or position > len(content):
            return
        record = content[begin:position] if kind in (FULL, FIRST) else record + content[begin:position]
        if kind in (FULL, LAST):
            yield record
