"""One engine with a thread: it hands messages to those they are for, and sees to it that writes come to an end."""

from __future__ import annotations

import logging
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from .engine import Engine, Memory
from ._messages import Kind, Message
from .errors import EngineError, TransferError, TransferTimeoutError

log = logging.getLogger("splitzip.transfer")

# How long the thread sleeps: while something moves, and while nothing does.
_BUSY, _IDLE = 50e-6, 2e-3


class Endpoint:
    """All that calls an engine. Senders and receivers that were given the same engine share it."""

    _all: weakref.WeakKeyDictionary[Any, Endpoint] = weakref.WeakKeyDictionary()
    _making = threading.Lock()

    @classmethod
    def of(cls, engine: Engine) -> Endpoint:
        """That of an engine."""
        with cls._making:
            endpoint = cls._all.get(engine)
            if endpoint is None:
                endpoint = cls(engine)
                cls._all[engine] = endpoint
            return endpoint

    def __init__(self, engine: Engine) -> None:
        # The engine holds this, so this must not hold the engine by way of the dictionary of all.
        self._engine = weakref.ref(engine)
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._writes: list[tuple[Any, Channel, Callable[[Exception | None], None]]] = []
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        #: Messages that were for nobody here.
        self.foreign = 0

    def add(self, channel: Channel) -> None:
        """Begins to hand messages to a channel."""
        with self._lock:
            self._channels[channel.number] = channel
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="splitzip-transfer", daemon=True)
                self._thread.start()

    def remove(self, channel: Channel) -> None:
        """Ends that. The thread ends with the last channel."""
        with self._lock:
            self._channels.pop(channel.number, None)
        self._wake.set()

    def call(self, what: Callable[[Engine], Any]) -> Any:
        """A call of the engine."""
        with self._lock:
            engine = self._engine()
            if engine is None:
                raise EngineError("the engine was closed")
            return what(engine)

    def write(
        self,
        channel: Channel,
        peer: Any,
        source: Memory,
        target: Memory,
        notice: bytes | None,
        then: Callable[[Exception | None], None],
    ) -> None:
        """Begins a write; ``then`` is called when it is complete or has failed."""
        write = self.call(lambda engine: engine.write(peer, source, target, notice))
        with self._lock:
            self._writes.append((write, channel, then))
        self._wake.set()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._channels:
                    self._thread = None
                    return
                channels = list(self._channels.values())
            try:
                busy = self._step(channels)
                for channel in channels:
                    channel.tick(time.monotonic())
            except Exception as error:  # Whatever it is: without this thread everybody would wait.
                busy = False
                for channel in channels:
                    channel.fail(error)
            self._wake.wait(_BUSY if busy else _IDLE)
            self._wake.clear()

    def _step(self, channels: list[Channel]) -> bool:
        found = self.call(lambda engine: engine.messages())
        for data in found:
            self._deliver(data)
        with self._lock:
            writes, self._writes = self._writes, []
        going = []
        for write in writes:
            handle, _, then = write
            outcome: Exception | None = None
            try:
                if not self.call(lambda engine, handle=handle: engine.done(handle)):  # type: ignore[misc]
                    going.append(write)
                    continue
            except Exception as failed:  # The sender of this write has to know; the others go on.
                outcome = failed
            then(outcome)
        with self._lock:
            self._writes += going
            return bool(self._writes or found) or any(channel.open for channel in channels)

    def _deliver(self, data: bytes) -> None:
        message = Message.unpack(data)
        channel = None if message is None else self._channels.get(message.to)
        if message is None or channel is None:
            self.foreign += 1
            log.warning("a message of %d bytes was for nobody here: %r", len(data), data[:40])
            return
        try:
            channel.deliver(message)
        except Exception as error:  # Of this channel; the others go on.
            channel.fail(error)


class Channel:
    """One end of a pair of sender and receiver: who the other one is, when it was last heard, and what has failed."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        #: Kept, since the endpoint does not.
        self.engine = engine
        self.endpoint = Endpoint.of(engine)
        #: What messages for this end carry.
        self.number = secrets.randbits(63) | 1
        self.timeout = timeout
        self.changed = threading.Condition()
        self.peer: Any = None
        self.peer_number = 0
        #: Whether a transfer is going on, or is expected.
        self.open = False
        self.failed: Exception | None = None
        self.counters: Counter[str] = Counter()
        self._heard = self._said = time.monotonic()

    def say(self, kind: Kind, transfer: int = 0, body: bytes = b"") -> None:
        """Sends a message to the other end."""
        self._said = time.monotonic()
        message = Message(kind, self.peer_number, self.number, transfer, body).pack()
        self.endpoint.call(lambda engine: engine.notify(self.peer, message))

    def say_if_possible(self, kind: Kind, transfer: int = 0, body: bytes = b"") -> None:
        """The same, where its failure says nothing new."""
        try:
            self.say(kind, transfer, body)
        except TransferError as error:
            log.info("%s was not sent: %s", kind.name, error)

    def deliver(self, message: Message) -> None:
        """Takes a message. Called by the thread of the endpoint."""
        if message.sender == self.peer_number != 0:
            self._heard = time.monotonic()
            if message.kind is Kind.ALIVE:
                return
        elif message.kind is not Kind.HELLO:
            self.ignore("foreign", message)
            return
        self.take(message)

    def take(self, message: Message) -> None:
        """What a kind of channel does with a message."""
        raise NotImplementedError

    def ignore(self, why: str, message: Message) -> None:
        """Counts a message that changes nothing."""
        self.counters[f"ignored_{why}"] += 1
        log.warning("ignored %s, which is %s", message.kind.name, why)

    def begin(self) -> None:
        """From now on silence is an error."""
        self._heard = self._said = time.monotonic()
        self.open = True
        self.endpoint._wake.set()

    def tick(self, now: float) -> None:
        """Called again and again by the thread of the endpoint."""
        if not self.open or self.failed is not None:
            return
        if now - self._heard > self.timeout:
            self.fail(TransferTimeoutError(f"nothing was heard from the other side for {self.timeout:g} seconds; it hangs, or cannot reach this one"))
        elif now - self._said > self.timeout / 4 and self.peer is not None:
            try:
                self.say(Kind.ALIVE)
            except TransferError as error:
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """Wakes all that wait, with an error. What this end is for is over."""
        with self.changed:
            if self.failed is None:
                self.failed = error
            self.open = False
            self.changed.notify_all()

    def wait(self, until: Callable[[], bool], limit: float | None, what: str) -> None:
        """Waits, with :attr:`changed` held, and raises what fails before."""
        while not until():
            if self.failed is not None:
                raise self.failed
            left = None if limit is None else limit - time.monotonic()
            if left is not None and left <= 0:
                raise TransferTimeoutError(f"the time was over while waiting for {what}")
            self.changed.wait(left)


def keep(engine: Engine, memory: list[Any]) -> None:
    """Holds memory that may still be read or written for as long as the engine lives. It stays registered."""
    vars(engine).setdefault("_splitzip_kept", []).extend(memory)
