"""Mooncake's transfer engine as an engine."""

from __future__ import annotations

import base64
import json
import os
from typing import Any, NamedTuple

from .._splitzip import View
from ..errors import UnsupportedError
from .engine import Memory
from .errors import EngineError, PeerLostError


class _Peer(NamedTuple):
    segment: str
    bell: int


class _Write:
    def __init__(self, batch: int, peer: _Peer, notice: bytes | None) -> None:
        self.batch = batch
        self.peer = peer
        self.notice = notice


class MooncakeEngine:
    """Frames over the transfer engine of `Mooncake <https://github.com/kvcache-ai/Mooncake>`_.

    Parameters
    ----------
    host
        The address of this machine that the other side reaches.
    protocol, devices
        As Mooncake names them: ``"tcp"``, or ``"rdma"`` with the names of NICs.

    Notes
    -----
    Its notices come with a synchronous write, so every message is one of a single byte. The wheel ``mooncake-transfer-engine-non-cuda`` moves memory of
    the host; it needs ``libibverbs.so.1`` (Debian: ``apt install libibverbs1``) for TCP as well. Where the other process hangs without having ended, a synchronous call
    gives up after ``MC_TRANSFER_TIMEOUT`` seconds (30), and no other transfer of this engine goes on until then.
    """

    def __init__(self, host: str = "127.0.0.1", *, protocol: str = "tcp", devices: str = "") -> None:
        if protocol == "tcp":
            # Otherwise it looks for RDMA, and finds none on most machines.
            os.environ.setdefault("MC_FORCE_TCP", "true")
        try:
            import mooncake.engine as mooncake
        except ImportError as error:
            raise UnsupportedError(
                f"Mooncake cannot be imported; `pip install mooncake-transfer-engine-non-cuda`, and `apt install libibverbs1` for it: {error}"
            ) from error
        self._mooncake = mooncake
        self._engine: Any = mooncake.TransferEngine()
        self._protocol = protocol
        if self._engine.initialize(host, "P2PHANDSHAKE", protocol, devices) != 0:
            raise EngineError(f"Mooncake does not start on {host} with {protocol}; its log says why")
        self._segment = f"{host}:{self._engine.get_rpc_port()}"
        self.device_memory = bool(getattr(mooncake, "SUPPORT_CUDA", False)) and protocol != "tcp"
        # What notices are written to and from; nobody reads it.
        self._bell = bytearray(128)
        self._bell_at = View(self._bell, "raw").address
        self._bell_registration = self.register(Memory(self._bell_at, len(self._bell)))

    @property
    def name(self) -> str:
        """``mooncake``, and the protocol."""
        return f"mooncake/{self._protocol}"

    def register(self, memory: Memory) -> int:
        location = "*" if memory.device is None else f"cuda:{memory.device}"
        code = self._engine.register_memory(memory.address, memory.nbytes, location)
        if code != 0:
            raise EngineError(f"Mooncake does not register {memory.nbytes} bytes (code {code}); its log says why")
        return memory.address

    def deregister(self, registration: int) -> None:
        self._engine.unregister_memory(registration)

    def metadata(self) -> bytes:
        return json.dumps([self._segment, self._bell_at + 64]).encode()

    def connect(self, metadata: bytes) -> _Peer:
        try:
            segment, bell = json.loads(metadata)
            return _Peer(str(segment), int(bell))
        except (ValueError, TypeError) as error:
            raise EngineError(f"these are no metadata of Mooncake: {metadata[:80]!r}") from error

    def disconnect(self, peer: _Peer) -> None:
        """There is nothing that Mooncake could forget."""

    def write(self, peer: _Peer, source: Memory, target: Memory, notice: bytes | None) -> _Write:
        batch = self._engine.transfer_submit_write(peer.segment, source.address, target.address, source.nbytes)
        if batch in (0, -1):
            raise PeerLostError(f"Mooncake does not begin a write to {peer.segment}; the other side has ended, or its log says why")
        return _Write(batch, peer, notice)

    def done(self, write: _Write) -> bool:
        status = self._engine.transfer_check_status(write.batch)
        if status == 0:
            return False
        if status < 0:
            raise PeerLostError(f"a write of Mooncake to {write.peer.segment} failed (code {status}); the other side has ended, or its log says why")
        if write.notice is not None:
            self.notify(write.peer, write.notice)
        return True

    def notify(self, peer: _Peer, message: bytes) -> None:
        notice = self._mooncake.TransferNotify()
        notice.name = "splitzip"
        # It is a text for Python.
        notice.msg = base64.b64encode(message).decode()
        code = self._engine.transfer_sync(peer.segment, self._bell_at, peer.bell, 1, self._mooncake.TransferOpcode.Write, notice)
        if code != 0:
            raise PeerLostError(f"Mooncake does not reach {peer.segment} (code {code}); the other side has ended, or its log says why")

    def messages(self) -> list[bytes]:
        found = []
        for notice in self._engine.get_notifies():
            if notice.name == "splitzip":
                try:
                    found.append(base64.b64decode(notice.msg, validate=True))
                except ValueError:
                    # Somebody else's, by the same name.
                    found.append(notice.msg.encode())
        return found

    def close(self) -> None:
        if self._engine is not None:
            self.deregister(self._bell_registration)
            self._engine = None

    def __repr__(self) -> str:
        return f"<MooncakeEngine {self._segment}>"
