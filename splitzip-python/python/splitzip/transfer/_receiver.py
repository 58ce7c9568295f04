"""The side that wants the tensors."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from .. import _splitzip
from .._codec import Codec, cuda_number, make_outputs
from .._dtypes import dtype_name
from .._options import Framework
from ..errors import ArgumentError, CorruptError
from ._endpoint import Channel, keep, log
from ._messages import Address, Credit, Kind, Landed, Message, Plan, pack_credits
from ._staging import Staging, new_stream
from .engine import Engine
from .errors import CancelledError, PeerLostError, TransferError


class Receiver:
    """Receives frames from one :class:`Sender` at a time.

    Parameters
    ----------
    engine
        As for the sender; both must be of one kind.
    slot_nbytes
        The largest frame that may come: ``Codec(...).max_nbytes`` of the largest layer.
    slots
        How many frames may have come, or be on their way, and not be decoded yet. With one nothing overlaps.
    device
        Where tensors are decoded: ``"cpu"`` or ``"cuda:0"``.
    layout_id
        Take only transfers of this layout; ``None`` leaves the question to the caller.
    timeout
        As for the sender.
    threads
        For decoding on the host; ``None`` is one a core.

    Notes
    -----
    When a sender is lost in the middle of a transfer, nobody knows whether it still writes: the receiver then takes nothing any more, and its memory is
    kept until the engine ends. Make another one.
    """

    def __init__(
        self,
        engine: Engine,
        slot_nbytes: int,
        *,
        slots: int = 4,
        device: Any = "cpu",
        layout_id: int | None = None,
        timeout: float = 30.0,
        threads: int | None = None,
    ) -> None:
        if slots < 1 or slot_nbytes < 1:
            raise ArgumentError(f"{slots} slots of {slot_nbytes} bytes hold no frame; give at least 1, of Codec(...).max_nbytes bytes")
        self._cuda = cuda_number(device)
        self._threads = threads
        self._stream = new_stream(self._cuda)
        self._layout_id = layout_id
        self._channel = _ReceiveChannel(engine, timeout, self._objection)
        self._slots: list[Staging] = []
        self._registrations: list[Any] = []
        for _ in range(slots):
            slot = Staging(slot_nbytes, self._cuda, engine.device_memory)
            self._slots.append(slot)
            self._registrations.append(self._channel.endpoint.call(lambda engine, slot=slot: engine.register(slot.memory)))  # type: ignore[misc]
        self._generation = 0
        self._metadata = self._channel.endpoint.call(lambda engine: engine.metadata())
        self._channel.endpoint.add(self._channel)

    @property
    def address(self) -> bytes:
        """What a :class:`Sender` needs, as text of JSON: bring it there in any way."""
        slots = [slot.memory for slot in self._slots]
        return Address(self._channel.number, self._channel.engine.name, self._metadata, slots).pack()

    @property
    def counters(self) -> dict[str, int]:
        """How many messages were ignored, and why."""
        return dict(self._channel.counters)

    def accept(self, *, time_limit: float | None = None) -> Incoming:
        """Waits for a transfer, of any sender.

        Parameters
        ----------
        time_limit
            Seconds to wait for it.

        Returns
        -------
        Incoming
        """
        channel = self._channel
        limit = None if time_limit is None else time.monotonic() + time_limit
        with channel.changed:
            if channel.current is not None and not channel.current.over:
                raise ArgumentError("the transfer before this one is not over; receive all of it, or cancel it")
            channel.wait(lambda: bool(channel.started), limit, "a sender")
            number, plan = channel.started.popleft()
            channel.current = Incoming(self, number, plan)
        return channel.current

    def _objection(self, plan: Plan) -> str | None:
        """Why a transfer is refused without asking anybody."""
        room = self._slots[0].memory.nbytes
        for spec in plan.specs:
            if self._layout_id is not None and spec.layout_id != self._layout_id:
                return f"its layout is {spec.layout_id:#x}, and this side takes {self._layout_id:#x} only"
            if spec.max_frame_bytes > room:
                return f"a frame may have {spec.max_frame_bytes} bytes, and the slots here have {room}; make the receiver with larger ones"
        return None

    def _grant(self, slot: int) -> Credit:
        self._generation = (self._generation + 1) % (1 << 32)
        return Credit(slot, self._generation)

    def close(self) -> None:
        """Cancels what is going on, and ends."""
        channel = self._channel
        if channel.current is not None:
            channel.current.cancel("the receiver was closed")
        if channel.peer is not None and channel.failed is None:
            channel.say_if_possible(Kind.BYE)
        channel.endpoint.remove(channel)
        if channel.failed is not None and self._slots:
            # Somebody may still write there.
            keep(channel.engine, self._slots)
        else:
            for registration in self._registrations:
                with contextlib.suppress(TransferError):
                    channel.endpoint.call(lambda engine, registration=registration: engine.deregister(registration))  # type: ignore[misc]
        self._slots, self._registrations = [], []
        channel.forget()
        channel.fail(PeerLostError("this receiver was closed"))

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _ReceiveChannel(Channel):
    """The messages of a receiver."""

    def __init__(self, engine: Engine, timeout: float, objection: Callable[[Plan], str | None]) -> None:
        super().__init__(engine, timeout)
        self.current: Incoming | None = None
        self.started: deque[tuple[int, Plan]] = deque()
        self._objection = objection

    def take(self, message: Message) -> None:
        if message.kind is Kind.HELLO:
            self._greet(message)
        elif message.kind is Kind.START:
            self._start(message)
        elif message.kind is Kind.BYE:
            if self.open:
                self.fail(PeerLostError("the sender was closed in the middle of a transfer"))
            self.forget()
        elif message.kind is Kind.CANCELLED and any(number == message.transfer for number, _ in self.started):
            with self.changed:
                self.started.clear()
                self.open = False
        elif self.current is None or message.transfer != self.current.number or not self.current.listening:
            self.ignore("late", message)
        else:
            self.current.take(message)

    def _greet(self, message: Message) -> None:
        """A new sender. It takes the place of one that has no transfer going on."""
        if message.sender == self.peer_number:
            self.ignore("duplicate", message)
            return
        if self.open or self.failed is not None:
            why = "another sender is in the middle of a transfer; wait, or use another receiver"
            if self.failed is not None:
                why = f"this receiver has failed ({self.failed}); make another one"
            peer = self.endpoint.call(lambda engine: engine.connect(message.body))
            refusal = Message(Kind.REFUSED, message.sender, self.number, 0, why.encode()).pack()
            self.endpoint.call(lambda engine: engine.notify(peer, refusal))
            self.endpoint.call(lambda engine: engine.disconnect(peer))
            return
        if self.peer is not None:
            self.say_if_possible(Kind.BYE)
            self.forget()
        self.peer = self.endpoint.call(lambda engine: engine.connect(message.body))
        self.peer_number = message.sender
        self.say(Kind.WELCOME)

    def _start(self, message: Message) -> None:
        if self.open:
            self.ignore("unexpected", message)
            return
        try:
            plan = Plan.unpack(message.body)
            objection = self._objection(plan)
        except TransferError as error:
            objection = str(error)
        if objection is not None:
            log.warning("refused a transfer: %s", objection)
            self.say(Kind.REFUSED, message.transfer, objection.encode())
            return
        with self.changed:
            self.started.append((message.transfer, plan))
            self.changed.notify_all()
        # The sender waits until somebody accepts it, and must see that this side lives.
        self.begin()

    def forget(self) -> None:
        """The sender has gone."""
        if self.peer is not None:
            with contextlib.suppress(TransferError):
                self.endpoint.call(lambda engine: engine.disconnect(self.peer))
        self.peer, self.peer_number = None, 0

    def fail(self, error: Exception) -> None:
        super().fail(error)
        if self.current is not None:
            self.current.end(error)


class Incoming:
    """A transfer from the side of the receiver: made by :meth:`Receiver.accept`. Iterate over :meth:`receive` to have the layers as they land."""

    def __init__(self, receiver: Receiver, number: int, plan: Plan) -> None:
        self._receiver = receiver
        self._channel = receiver._channel
        self._plan = plan
        self.number = number
        self._granted: dict[int, int] = {}
        self._landed: deque[Landed] = deque()
        self._seen: set[int] = set()
        self._accepted = self._told = False
        #: Whether it has come to an end, good or bad.
        self.over = False
        #: Whether messages of the sender still mean something.
        self.listening = True
        self._error: Exception | None = None
        #: Bytes of the frames that were decoded.
        self.wire_nbytes = 0
        #: Bytes of the tensors in them.
        self.raw_nbytes = 0
        #: Seconds that decoding took.
        self.decode_seconds = 0.0

    @property
    def layers(self) -> int:
        """How many layers will come."""
        return len(self._plan.layers)

    def layout_id(self, layer: int = 0) -> int:
        """The layout of a layer."""
        return int(self._plan.spec(layer).layout_id)

    def tensors(self, layer: int = 0) -> list[tuple[str, str, str, tuple[int, ...]]]:
        """Name, dtype, scheme and shape of every tensor of a layer."""
        return [(name, dtype, scheme, shape) for name, _, dtype, scheme, _, shape in self._plan.spec(layer).tensors]

    def expect(self, tensors: Any, layers: int) -> None:
        """Refuses the transfer, and raises, unless it brings just these dtypes and shapes so many times.

        Parameters
        ----------
        tensors
            As for :meth:`Sender.transfer`.
        layers
            How many.
        """
        wanted = [(dtype_name(dtype), tuple(shape)) for _, _, dtype, _, _, shape in Codec(tensors, scheme="stored")._spec.tensors]
        if self.layers != layers:
            self._mismatch(f"{self.layers} layers are announced, and {layers} are expected")
        for layer in range(self.layers):
            found = [(dtype, shape) for _, dtype, _, shape in self.tensors(layer)]
            if found != wanted:
                self._mismatch(f"layer {layer} is announced as {found}, and {wanted} is expected")

    def _mismatch(self, reason: str) -> None:
        self.refuse(reason)
        raise ArgumentError(f"the transfer was refused: {reason}")

    def refuse(self, reason: str) -> None:
        """Refuses the transfer before anything of it is sent; the sender sees a :class:`RefusedError`."""
        if self._accepted or self.over:
            raise ArgumentError("the transfer was accepted already, or is over; cancel it")
        self.over, self.listening = True, False
        self._channel.open = False
        self._channel.say(Kind.REFUSED, self.number, reason.encode())

    def receive(
        self,
        out: Callable[[int], Any] | Sequence[Any] | None = None,
        *,
        framework: Framework | None = None,
        time_limit: float | None = None,
    ) -> Iterator[tuple[int, list[Any]]]:
        """Accepts the transfer, and gives every layer when it has landed and is decoded.

        A slot is free for another frame once its layer is decoded, so a caller that is slow holds up the sender, and no memory grows. To leave the loop early
        cancels the transfer.

        Parameters
        ----------
        out
            Outputs of a layer: a function of its number, or a sequence by number. Without it they are allocated.
        framework
            As for :func:`splitzip.decompress`.
        time_limit
            Seconds in which it must be over.

        Yields
        ------
        tuple of int and list
            The number of a layer, in the order in which they land, and its tensors. On a device they are complete, not only queued.
        """
        if self._accepted or self.over:
            raise ArgumentError("a transfer is received once")
        self._accepted = True
        return self._layers(out, framework, None if time_limit is None else time.monotonic() + time_limit)

    def _layers(self, out: Any, framework: Framework | None, limit: float | None) -> Iterator[tuple[int, list[Any]]]:
        channel, receiver = self._channel, self._receiver
        try:
            credits = [self._give(slot) for slot in range(len(receiver._slots))]
            channel.say(Kind.ACCEPT, self.number, pack_credits(credits))
            for count in range(self.layers):
                with channel.changed:
                    channel.wait(lambda: self._error is not None or bool(self._landed), limit, f"layer {count + 1} of {self.layers} to land")
                    if self._error is not None:
                        raise self._error
                    landed = self._landed.popleft()
                outputs = self._decode(landed, out, framework)
                if count + len(credits) < self.layers:
                    channel.say(Kind.CREDIT, self.number, pack_credits([self._give(landed.slot)]))
                if count + 1 == self.layers:
                    with channel.changed:
                        self.over, self.listening, channel.open = True, False, False
                    channel.say_if_possible(Kind.DONE, self.number)
                yield landed.layer, outputs
        except GeneratorExit:
            self.cancel("the receiver left the loop")
            raise
        except BaseException as error:
            self._give_up(Kind.FAILED, error)
            raise

    def _give(self, slot: int) -> Credit:
        credit = self._receiver._grant(slot)
        with self._channel.changed:
            self._granted[slot] = credit.generation
        return credit

    def _decode(self, landed: Landed, out: Any, framework: Framework | None) -> list[Any]:
        receiver, spec = self._receiver, self._plan.spec(landed.layer)
        slot = receiver._slots[landed.slot]
        if not spec.dense_bytes <= landed.nbytes <= spec.max_frame_bytes:
            raise CorruptError(
                f"layer {landed.layer} is said to have {landed.nbytes} bytes, and a frame of it has {spec.dense_bytes} to {spec.max_frame_bytes}; it was not decoded"
            )
        outputs = self._outputs(spec, out, landed.layer, framework)
        began = time.perf_counter()
        slot.decode(spec, landed.nbytes, outputs, receiver._threads, receiver._stream)
        self.decode_seconds += time.perf_counter() - began
        slot.wipe(spec)
        self.wire_nbytes += landed.nbytes
        self.raw_nbytes += spec.raw_bytes
        return outputs

    def _outputs(self, spec: _splitzip.Spec, out: Any, layer: int, framework: Framework | None) -> list[Any]:
        if out is None:
            return make_outputs(spec, None, framework, self._receiver._cuda)
        given = out(layer) if callable(out) else out[layer]
        listed = list(given) if isinstance(given, (list, tuple)) else [given]
        if len(listed) != len(spec):
            raise ArgumentError(f"{len(listed)} outputs for the {len(spec)} tensors of layer {layer}; give one for each, in order")
        return listed

    def cancel(self, reason: str = "the receiver cancelled it") -> None:
        """Ends the transfer: the sender sees a :class:`CancelledError`. Returns when it has stopped writing. Does nothing if it is over."""
        if not self.over:
            if not self._accepted:
                self.refuse(reason)
                return
            self._give_up(Kind.CANCELLED, CancelledError(reason))

    def _give_up(self, kind: Kind, error: BaseException) -> None:
        channel = self._channel
        self.end(error if isinstance(error, Exception) else CancelledError(f"the receiver was interrupted by {type(error).__name__}"))
        with channel.changed:
            if self.over:
                return
            tell = not self._told and self.listening and channel.failed is None
            self._told = True
        if tell:
            channel.say_if_possible(kind, self.number, str(error)[:400].encode())
        with channel.changed:
            with contextlib.suppress(TransferError):
                channel.wait(lambda: not self.listening, time.monotonic() + channel.timeout, "the sender to stop")
            self.over = True
            if self.listening and channel.failed is None:
                # It does not answer, so its slots cannot be given to anybody.
                channel.open = False
                channel.failed = PeerLostError("the sender did not stop writing when it was asked to; make another receiver")

    def end(self, error: Exception) -> None:
        """Wakes whoever waits for a layer, with an error; the first one counts."""
        with self._channel.changed:
            if self._error is None and not self.over:
                self._error = error
            self._channel.changed.notify_all()

    def take(self, message: Message) -> None:
        """A message of the sender about this transfer. Called by the thread of the endpoint."""
        if message.kind is Kind.LANDED:
            landed = Landed.unpack(message.body)
            with self._channel.changed:
                # Each slot is filled once for each time that it is given, and each layer comes once.
                if landed is None or self._granted.get(landed.slot) != landed.generation:
                    self._channel.ignore("duplicate" if landed is not None and landed.layer in self._seen else "foreign", message)
                    return
                if landed.layer in self._seen or landed.layer >= self.layers:
                    self.end(CorruptError(f"the sender sent layer {landed.layer} twice, or announced only {self.layers} layers"))
                    return
                del self._granted[landed.slot]
                self._seen.add(landed.layer)
                self._landed.append(landed)
                self._channel.changed.notify_all()
        elif message.kind is Kind.CANCELLED:
            with self._channel.changed:
                self.listening = False
                self._channel.open = False
                self.end(CancelledError(f"the sender gave up: {message.body.decode(errors='replace')}"))
        else:
            self._channel.ignore("unexpected", message)
