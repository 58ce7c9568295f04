"""What a transfer asks of the library that moves the bytes."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

__all__ = ["Engine", "Memory"]


class Memory(NamedTuple):
    """Bytes somewhere: on this side or on the other one."""

    address: int
    nbytes: int
    #: The number of a CUDA device, or ``None`` for the host.
    device: int | None = None

    def part(self, start: int, stop: int) -> Memory:
        """The bytes from ``start`` to ``stop``."""
        return Memory(self.address + start, stop - start, self.device)


class Engine(Protocol):
    """A transfer engine: one-sided writes into memory that the other side has registered, and short messages.

    Calls come from several threads, but one at a time. What fails raises :class:`~splitzip.transfer.EngineError` or
    :class:`~splitzip.transfer.PeerLostError`.
    """

    @property
    def name(self) -> str:
        """What both sides must have in common."""

    @property
    def device_memory(self) -> bool:
        """Whether it moves memory of CUDA devices. Where it does not, that is staged through pinned memory."""

    def register(self, memory: Memory) -> Any:
        """Makes memory known, for writes from it and into it."""

    def deregister(self, registration: Any) -> None:
        """Undoes :meth:`register`."""

    def metadata(self) -> bytes:
        """What another engine needs to reach this one and the memory that is registered now."""

    def connect(self, metadata: bytes) -> Any:
        """The peer that metadata belongs to."""

    def disconnect(self, peer: Any) -> None:
        """Forgets a peer."""

    def write(self, peer: Any, source: Memory, target: Memory, notice: bytes | None) -> Any:
        """Begins to write bytes of this side into memory of the peer, and sends it ``notice`` once they are there."""

    def done(self, write: Any) -> bool:
        """Whether a write is complete, and its notice sent. Not asked again after that."""

    def notify(self, peer: Any, message: bytes) -> None:
        """Sends a message of at most some kilobytes."""

    def messages(self) -> list[bytes]:
        """The messages and notices that have come since the last time."""

    def close(self) -> None:
        """Ends the engine; peers see that it is lost."""
