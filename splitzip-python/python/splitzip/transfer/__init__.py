"""Frames between two processes, layer by layer, over a transfer engine.

A :class:`Receiver` has registered slots; a :class:`Sender` encodes a layer into a registered buffer and has the engine write it into one of them, while the layer before it
is still on the wire and the next one is computed. The receiver decodes layers as they land. Ours are the codec and the framing: bytes are moved by
`NIXL <https://github.com/ai-dynamo/nixl>`_ (:class:`NixlEngine`), by `Mooncake <https://github.com/kvcache-ai/Mooncake>`_ (:class:`MooncakeEngine`), or by anything that
does what :class:`Engine` says. ``docs/wire.md`` describes the messages and what happens when something goes wrong.
"""

from ._mooncake import MooncakeEngine
from ._nixl import NixlEngine
from ._receiver import Incoming, Receiver
from ._sender import Outgoing, Sender
from ._shaped import ShapedEngine
from .engine import Engine, Memory
from .errors import CancelledError, EngineError, PeerLostError, RefusedError, TransferError, TransferTimeoutError

__all__ = [
    "CancelledError",
    "Engine",
    "EngineError",
    "Incoming",
    "Memory",
    "MooncakeEngine",
    "NixlEngine",
    "Outgoing",
    "PeerLostError",
    "Receiver",
    "RefusedError",
    "Sender",
    "ShapedEngine",
    "TransferError",
    "TransferTimeoutError",
]
