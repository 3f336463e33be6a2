"""Filters in the kernel that close gloo's listening sockets to strangers.

gloo accepts connections from anyone and keeps them: a stranger could take a worker's place while it connects, or open
connections until the process has no file descriptors left, which ends it. A socket filter drops the packets of other
addresses before a connection exists. It needs no privileges, and established connections keep their own filter.
"""

import contextlib
import ctypes
import ipaddress
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
DESCRIPTORS = Path("/proc/self/fd")
_SO_ATTACH_FILTER = 26
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NETWORK_HEADER = 0xFFF00000
"""Offset that stands for the start of the IP header."""
_SOURCE_OFFSETS = {4: 12, 6: 8}
"""Offset of the source address in the header, by version of IP."""
_ACCEPT, _DROP = 0xFFFFFFFF, 0
_CREATING = threading.Lock()


def create_listeners(create: Callable[[], T]) -> tuple[T, list[int]]:
    """Call a function of a library. Returns its result, and the descriptors of the listening sockets it has opened."""
    with _CREATING:
        before = set(_listening_descriptors())
        made = create()
        return made, [descriptor for descriptor in _listening_descriptors() if descriptor not in before]


def admit_only(descriptors: Iterable[int], addresses: Iterable[str]) -> None:
    """Accept new connections only from these addresses; from none, if there are none."""
    program = source_filter(addresses)
    code = ctypes.create_string_buffer(program)
    argument = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
    for descriptor in descriptors:
        # Otherwise another thread could take the copy for a listener that it has just created.
        with _CREATING, socket.socket(fileno=os.dup(descriptor)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, argument)


def source_filter(addresses: Iterable[str]) -> bytes:
    """A classic BPF program that accepts packets from these addresses and drops all others."""
    instructions: list[tuple[int, int, int, int]] = []
    for address in map(ipaddress.ip_address, addresses):
        words = struct.unpack(f"!{len(address.packed) // 4}I", address.packed)
        for index, word in enumerate(words):
            offset = _NETWORK_HEADER + _SOURCE_OFFSETS[address.version] + 4 * index
            to_next_address = 2 * (len(words) - index - 1) + 1
            instructions += [(_LOAD_WORD, 0, 0, offset), (_JUMP_IF_EQUAL, 0, to_next_address, word)]
        instructions.append((_RETURN, 0, 0, _ACCEPT))
    instructions.append((_RETURN, 0, 0, _DROP))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)


def _listening_descriptors() -> Iterator[int]:
    for entry in DESCRIPTORS.iterdir() if DESCRIPTORS.exists() else ():
        if not entry.is_socket():
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as candidate:  # Just closed.
            is_internet = candidate.family in (socket.AF_INET, socket.AF_INET6)
            if is_internet and candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                yield int(entry.name)
