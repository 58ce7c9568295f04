"""NIXL as an engine."""

from __future__ import annotations

import contextlib
import importlib
import uuid
from collections.abc import Iterator
from typing import Any

from ..errors import ArgumentError, UnsupportedError
from .engine import Memory
from .errors import EngineError, PeerLostError

# The package picks the build for the CUDA of this machine and fails if that one is not installed; for memory of the host any of them does.
_MODULES = ("nixl._api", "nixl_cu13._api", "nixl_cu12._api")


def _api() -> Any:
    failures = []
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            failures.append(f"{name}: {error}")
    raise UnsupportedError(
        "NIXL cannot be imported; `pip install nixl` (for memory of the host `pip install --no-deps nixl nixl-cu12` is enough): " + "; ".join(failures)
    )


class NixlEngine:
    """Frames over `NIXL <https://github.com/ai-dynamo/nixl>`_.

    Parameters
    ----------
    name
        Of the agent, for logs; something random is added, since names must be unique.
    backend
        Of NIXL. UCX takes its transports from the environment: ``UCX_TLS=tcp UCX_NET_DEVICES=lo`` is the loopback.
    device_memory
        Register memory of CUDA devices instead of staging it through pinned memory. UCX must have a transport for it.
    progress_thread
        Let NIXL have a thread of its own that never sleeps. Without it the thread of the transfers drives it, which is faster where cores are few.
    """

    def __init__(
        self, name: str = "splitzip", *, backend: str = "UCX", device_memory: bool = False, progress_thread: bool = False
    ) -> None:
        api = _api()
        # Calls come one at a time, so its own locks would guard nothing.
        config = api.nixl_agent_config(enable_prog_thread=progress_thread, backends=[backend])
        self._agent: Any = api.nixl_agent(f"{name}-{uuid.uuid4().hex[:12]}", config)
        if backend not in self._agent.backends:
            found = ", ".join(sorted(self._agent.plugin_list))
            raise ArgumentError(f"NIXL has no backend {backend!r}; it has {found}")
        self._backend = backend
        self.device_memory = device_memory

    @property
    def name(self) -> str:
        """``nixl``, and the backend."""
        return f"nixl/{self._backend}"

    def register(self, memory: Memory) -> Any:
        with _errors("register memory"):
            return self._agent.register_memory([(memory.address, memory.nbytes, memory.device or 0, "")], _kind(memory))

    def deregister(self, registration: Any) -> None:
        with _errors("deregister memory"):
            self._agent.deregister_memory(registration)

    def metadata(self) -> bytes:
        with _errors("describe itself"):
            return bytes(self._agent.get_agent_metadata())

    def connect(self, metadata: bytes) -> str:
        with _errors("take the metadata of a peer"):
            peer = self._agent.add_remote_agent(metadata)
        return peer.decode() if isinstance(peer, bytes) else str(peer)

    def disconnect(self, peer: str) -> None:
        with _errors("forget a peer"):
            self._agent.remove_remote_agent(peer)

    def write(self, peer: str, source: Memory, target: Memory, notice: bytes | None) -> Any:
        with _errors("begin a write"):
            handle = self._agent.initialize_xfer("WRITE", self._descriptors(source), self._descriptors(target), peer, notice or b"")
            # Small writes are done here already; then the status says so as well.
            self._agent.transfer(handle, notice or b"")
        return handle

    def _descriptors(self, memory: Memory) -> Any:
        return self._agent.get_xfer_descs([(memory.address, memory.nbytes, memory.device or 0)], _kind(memory))

    def done(self, write: Any) -> bool:
        with _errors("write"):
            state = self._agent.check_xfer_state(write)
            if state == "PROC":
                return False
            write.release()
        if state != "DONE":
            raise EngineError(f"NIXL says {state} for a write; its log (NIXL_LOG_LEVEL=INFO) may say why")
        return True

    def notify(self, peer: str, message: bytes) -> None:
        with _errors("send a notification"):
            self._agent.send_notif(peer, message)

    def messages(self) -> list[bytes]:
        with _errors("look for notifications"):
            notices = self._agent.get_new_notifs()
        return [message for messages in notices.values() for message in messages]

    def close(self) -> None:
        self._agent = None

    def __repr__(self) -> str:
        return f"<NixlEngine {'closed' if self._agent is None else self._agent.name}>"


def _kind(memory: Memory) -> str:
    return "DRAM" if memory.device is None else "VRAM"


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    """NIXL's exceptions have only ``Exception`` in common, and its log says more than they do."""
    try:
        yield
    except (EngineError, PeerLostError):
        raise
    except Exception as error:
        if "Disconnect" in type(error).__name__:
            raise PeerLostError(f"the other side is lost: NIXL could not {what} ({error})") from error
        raise EngineError(f"NIXL could not {what}: {error or type(error).__name__}") from error
