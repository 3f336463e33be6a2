"""A relay of Ethernet frames that delays them, because not every kernel has netem.

It runs in the network namespace of the switch, between the port of a host and an interface of the switch, and delays
the frames of both directions without reducing the rate. Any protocol passes. Frames carry the offload header of virtio,
so that large segments pass in one piece, and checksums that are not computed yet stay marked as such.

    python delayed_link.py PORT WIRE DELAY_S
"""

import contextlib
import select
import socket
import sys
import time
from collections import deque

ETH_P_ALL = 3
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23  # linux/if_packet.h
MAX_FRAME_BYTES = 1 << 17
MAX_QUEUED_BYTES = 64 << 20
"""Frames beyond this are dropped, as routers do."""
SOCKET_BUFFER_BYTES = 8 << 20


class FrameQueue:
    """Frames on their way in one direction."""

    def __init__(self, source: socket.socket, target: socket.socket, delay_s: float) -> None:
        self.source, self._target, self._delay_s = source, target, delay_s
        self._frames: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0

    @property
    def due_at_s(self) -> float:
        """When the first frame is to be sent on; infinite if there is none."""
        return self._frames[0][0] if self._frames else float("inf")

    def receive(self) -> None:
        """Take all frames that have arrived."""
        while True:
            try:
                frame = self.source.recv(MAX_FRAME_BYTES)
            except OSError:  # No more frames, or the interface is down for a moment.
                return
            if self._queued_bytes + len(frame) <= MAX_QUEUED_BYTES:
                self._frames.append((time.monotonic() + self._delay_s, frame))
                self._queued_bytes += len(frame)

    def send_due(self, now_s: float) -> None:
        while self._frames and self._frames[0][0] <= now_s:
            _, frame = self._frames.popleft()
            self._queued_bytes -= len(frame)
            with contextlib.suppress(OSError):  # Lost: the queue of the interface is full, or the interface is down.
                self._target.send(frame)


def open_interface(name: str) -> socket.socket:
    """A socket for all frames that an interface receives."""
    interface = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    interface.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    interface.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        interface.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    interface.bind((name, ETH_P_ALL))
    interface.setblocking(False)
    return interface


def relay(port: str, wire: str, delay_s: float) -> None:
    """Relay until standard input closes."""
    one, other = open_interface(port), open_interface(wire)
    queues = [FrameQueue(one, other, delay_s), FrameQueue(other, one, delay_s)]
    print("ready", flush=True)
    while True:
        wait_s = min(queue.due_at_s for queue in queues) - time.monotonic()
        timeout_s = None if wait_s == float("inf") else max(0.0, wait_s)
        readable, _, _ = select.select([one, other, sys.stdin], [], [], timeout_s)
        if sys.stdin in readable:
            return
        for queue in queues:
            if queue.source in readable:
                queue.receive()
            queue.send_due(time.monotonic())


if __name__ == "__main__":
    relay(sys.argv[1], sys.argv[2], float(sys.argv[3]))
