"""What can go wrong with a transfer. Frames that cannot be read are :class:`splitzip.FrameError`, as everywhere."""

from __future__ import annotations

from ..errors import Error

__all__ = ["CancelledError", "EngineError", "PeerLostError", "RefusedError", "TransferError", "TransferTimeoutError"]


class TransferError(Error):
    """A transfer that did not come to its end."""


class EngineError(TransferError, OSError):
    """Something that the engine refused, or could not do."""


class PeerLostError(TransferError, ConnectionError):
    """The other side ended, closed, or cannot be reached."""


class RefusedError(TransferError):
    """The receiver does not take it: another layout, other tensors, frames that are too large, or another sender before it."""


class CancelledError(TransferError):
    """One of the two sides has given up, and the other one did not fail."""


class TransferTimeoutError(TransferError, TimeoutError):
    """Nothing was heard for too long, or it took longer than it was allowed to."""
