"""An engine inside of one process, for tests: writes are copies, and what goes wrong is what a test says."""

from __future__ import annotations

import ctypes
import itertools
import json
from typing import Any, Callable

from splitzip.transfer import EngineError, Memory, PeerLostError


class MemoryEngine:
    """Two of them reach each other by number."""

    name = "memory"
    device_memory = False
    _numbers = itertools.count()
    _all: dict[int, MemoryEngine] = {}

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self._all[self.number] = self
        self.registered: dict[int, Memory] = {}
        self.inbox: list[bytes] = []
        self.closed = False
        self.silent = False
        self.written = 0
        #: Changes what a write moves: gets source, target and notice, and returns them.
        self.on_write: Callable[[Memory, Memory, bytes | None], tuple[Memory, Memory, bytes | None]] | None = None
        #: Changes the messages that are sent: gets one and returns any number.
        self.on_notify: Callable[[bytes], list[bytes]] | None = None
        #: Whether writes stay on their way.
        self.stuck = False

    def register(self, memory: Memory) -> int:
        self.registered[memory.address] = memory
        return memory.address

    def deregister(self, registration: int) -> None:
        del self.registered[registration]

    def metadata(self) -> bytes:
        return json.dumps(self.number).encode()

    def connect(self, metadata: bytes) -> Any:
        return json.loads(metadata)

    def disconnect(self, peer: Any) -> None:
        pass

    def _peer(self, peer: int) -> MemoryEngine:
        other = self._all[peer]
        if other.closed:
            raise PeerLostError(f"engine {peer} is closed")
        return other

    def write(self, peer: int, source: Memory, target: Memory, notice: bytes | None) -> list[Any]:
        if self.on_write is not None:
            source, target, notice = self.on_write(source, target, notice)
        return [peer, source, target, notice]

    def done(self, write: list[Any]) -> bool:
        if self.stuck:
            return False
        peer, source, target, notice = write
        other = self._peer(peer)
        for memory, engine in ((source, self), (target, other)):
            if not any(at <= memory.address and memory.address + memory.nbytes <= at + one.nbytes for at, one in engine.registered.items()):
                raise EngineError("a write outside of registered memory")
        ctypes.memmove(target.address, source.address, source.nbytes)
        self.written += source.nbytes
        if notice is not None:
            self.notify(peer, notice)
        return True

    def notify(self, peer: int, message: bytes) -> None:
        if self.silent:
            return
        for one in [message] if self.on_notify is None else self.on_notify(message):
            self._peer(peer).inbox.append(one)

    def messages(self) -> list[bytes]:
        if self.closed:
            raise EngineError("this engine is closed")
        found, self.inbox = self.inbox, []
        return found

    def close(self) -> None:
        self.closed = True
