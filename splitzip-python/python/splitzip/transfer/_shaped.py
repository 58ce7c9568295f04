"""A link that is slower than the real one."""

from __future__ import annotations

import time
from typing import Any

from ..errors import ArgumentError
from .engine import Engine, Memory


class _Write:
    def __init__(self, write: Any, peer: Any, notice: bytes | None, until: float) -> None:
        self.write = write
        self.peer = peer
        self.notice = notice
        self.until = until


class ShapedEngine:
    """Another engine behind a token bucket: what would a link of so many bits a second give?

    The bytes are really moved, at the speed of the engine below; a write counts as complete, and its notice is sent, no earlier than a link of the given
    speed would have carried it and all writes before it. For measurements on one machine. Messages cost nothing.

    Parameters
    ----------
    engine
        What moves the bytes. It must be faster than the link, or the result is its own speed.
    gigabits
        The speed of the link, 10^9 bits a second; ``None`` is that of the engine.
    """

    def __init__(self, engine: Engine, gigabits: float | None) -> None:
        self._engine = engine
        self._free_at = 0.0
        self.gigabits = gigabits

    @property
    def gigabits(self) -> float | None:
        """The speed of the link. It may be changed between transfers."""
        return self._gigabits

    @gigabits.setter
    def gigabits(self, gigabits: float | None) -> None:
        if gigabits is not None and not gigabits > 0:
            raise ArgumentError(f"a link has a speed, and {gigabits} gigabits are none")
        self._gigabits = gigabits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def name(self) -> str:
        """That of the engine below: only this side is slow."""
        return self._engine.name

    def write(self, peer: Any, source: Memory, target: Memory, notice: bytes | None) -> _Write:
        seconds = 0.0 if self._gigabits is None else source.nbytes / (self._gigabits * 1e9 / 8)
        self._free_at = max(self._free_at, time.monotonic()) + seconds
        return _Write(self._engine.write(peer, source, target, None), peer, notice, self._free_at)

    def done(self, write: _Write) -> bool:
        if write.write is not None:
            if not self._engine.done(write.write):
                return False
            write.write = None
        if time.monotonic() < write.until:
            return False
        if write.notice is not None:
            self._engine.notify(write.peer, write.notice)
        return True
