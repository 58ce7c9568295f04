"""The side that has the tensors."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, NamedTuple

from .._codec import Codec, codecs, cuda_number
from .._options import Bases, Checksums, codebooks_of
from ..errors import ArgumentError, Error
from ._endpoint import Channel, keep, log
from ._messages import Address, Credit, Kind, Landed, Message, Plan, unpack_credits
from ._staging import Staging, new_stream, now_on
from .engine import Engine
from .errors import CancelledError, PeerLostError, RefusedError, TransferError


class _Job(NamedTuple):
    layer: int
    tensors: list[Any]
    ready: Any
    encoded: Future[int]


class Sender:
    """Sends frames to one :class:`Receiver`.

    Parameters
    ----------
    engine
        What moves the bytes: a :class:`NixlEngine`, a :class:`MooncakeEngine`, or anything like :class:`Engine`. Several senders and receivers may share it.
    address
        What ``receiver.address`` says, brought here in any way.
    device
        Where the tensors are: ``"cpu"`` or ``"cuda:0"``.
    buffers
        How many frames may be on their way: encoded, or being encoded, and not yet written.
    timeout
        After so many seconds without a word from the other side it is taken for dead. Both sides give signs of life while a transfer goes on.
    threads
        For encoding on the host; ``None`` is one a core.
    """

    def __init__(
        self,
        engine: Engine,
        address: bytes,
        *,
        device: Any = "cpu",
        buffers: int = 3,
        timeout: float = 30.0,
        threads: int | None = None,
    ) -> None:
        if buffers < 1:
            raise ArgumentError(f"{buffers} buffers cannot hold a frame; give at least 1 (2 let a frame be encoded while another one is sent)")
        self._cuda = cuda_number(device)
        self._threads = threads
        self._buffers = buffers
        self._stages: list[tuple[Staging, Any]] = []
        self._to = Address.unpack(address)
        if self._to.engine != engine.name:
            raise ArgumentError(f"the receiver is on {self._to.engine}, and this engine is {engine.name}; both sides must use the same")
        self._channel = _SendChannel(engine, timeout)
        self._stream = new_stream(self._cuda)
        self._transfer: Outgoing | None = None
        try:
            self._greet(timeout)
        except BaseException:
            self.close()
            raise

    def _greet(self, timeout: float) -> None:
        channel = self._channel
        channel.peer = channel.endpoint.call(lambda engine: engine.connect(self._to.metadata))
        channel.peer_number = self._to.channel
        channel.endpoint.add(channel)
        channel.say(Kind.HELLO, body=channel.endpoint.call(lambda engine: engine.metadata()))
        with channel.changed:
            channel.wait(lambda: channel.welcome, time.monotonic() + timeout, "the receiver to answer; is it still there?")

    @property
    def counters(self) -> dict[str, int]:
        """How many messages were ignored, and why."""
        return dict(self._channel.counters)

    def transfer(
        self,
        tensors: Any = None,
        *,
        layers: int | Sequence[Any] = 1,
        scheme: str = "w2x3",
        bases: Bases = "chunk",
        checksums: Checksums = "tensor",
        codebook: Any = None,
        layout_id: int = 0,
        arrival: bool = False,
        time_limit: float | None = None,
    ) -> Outgoing:
        """Announces a transfer, and returns when the receiver has accepted it.

        Parameters
        ----------
        tensors
            The dtypes and shapes of the tensors of every layer, as for :class:`splitzip.Codec`.
        layers
            How many; or, where layers differ, what ``tensors`` would be for each of them.
        scheme
            As for :class:`splitzip.Codec`, or ``"raw"``: the same frames with the bytes as they are.
        bases, checksums, codebook, layout_id, arrival
            As there.
        time_limit
            Seconds in which it must be over, as far as this side waits for it. Without one, only silence of the receiver ends it.

        Raises
        ------
        RefusedError
            When the receiver does not take it. Nothing was sent.
        """
        if self._transfer is not None and not self._transfer.over:
            raise ArgumentError("the transfer before this one is not over; finish or cancel it, or make another sender")
        if self._transfer is not None:
            self._transfer.settle()
        forms = [tensors] * layers if isinstance(layers, int) else list(layers)
        if not forms or (isinstance(layers, int) and tensors is None):
            raise ArgumentError("a transfer has at least one layer, and tensors or layers say what is in it")
        options = {"bases": bases if scheme != "raw" else "chunk", "checksums": checksums, "layout_id": layout_id, "arrival": arrival}
        coders: list[Codec] = []
        numbers: list[int] = []
        for form in forms:
            coder = Codec(form, scheme="stored" if scheme == "raw" else scheme, **options)  # type: ignore[arg-type]
            known = next((number for number, other in enumerate(coders) if other._spec == coder._spec), None)
            if known is None:
                coders.append(coder)
            numbers.append(len(coders) - 1 if known is None else known)
        for number, coder in enumerate(coders):
            books = codebooks_of(codebook, coder._spec.names)
            if self._cuda is not None:
                coders[number] = codecs.get(coder._spec, books, self._cuda, True)
            else:
                coders[number] = Codec._for(coder._spec, books, None, self._threads)
        singles = [_single(form) for form in forms]
        plan = Plan([coder._spec for coder in coders], numbers)
        self._channel.check()
        self._reserve(max(coder.max_nbytes for coder in coders))
        self._transfer = Outgoing(self, plan, coders, singles, time_limit)
        return self._transfer

    def _reserve(self, nbytes: int) -> None:
        if self._stages and self._stages[0][0].memory.nbytes >= nbytes:
            return
        self._release()
        for _ in range(self._buffers):
            stage = Staging(nbytes, self._cuda, self._channel.engine.device_memory)
            self._stages.append((stage, self._channel.endpoint.call(lambda engine, stage=stage: engine.register(stage.memory))))  # type: ignore[misc]

    def _release(self) -> None:
        for _, registration in self._stages:
            with contextlib.suppress(TransferError):
                self._channel.endpoint.call(lambda engine, registration=registration: engine.deregister(registration))  # type: ignore[misc]
        self._stages = []

    def close(self) -> None:
        """Cancels what is going on, and lets the receiver have another sender."""
        if self._transfer is not None:
            self._transfer.cancel("the sender was closed")
        channel = self._channel
        if channel.welcome and channel.failed is None:
            channel.say_if_possible(Kind.BYE)
        channel.endpoint.remove(channel)
        channel.fail(PeerLostError("this sender was closed"))
        if self._transfer is not None and self._transfer.flying:
            # The engine may still read there.
            keep(channel.engine, self._stages)
            self._stages = []
        self._release()
        if channel.peer is not None:
            with contextlib.suppress(TransferError):
                channel.endpoint.call(lambda engine: engine.disconnect(channel.peer))
            channel.peer = None

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _single(form: Any) -> bool:
    return isinstance(form, tuple) and len(form) == 2 and not isinstance(form[0], (tuple, list))


class _SendChannel(Channel):
    """The messages of a sender."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        super().__init__(engine, timeout)
        self.welcome = False
        self.current: Outgoing | None = None

    def check(self) -> None:
        """Raises what has failed."""
        if self.failed is not None:
            raise self.failed

    def take(self, message: Message) -> None:
        if message.kind is Kind.WELCOME:
            with self.changed:
                self.welcome = True
                self.changed.notify_all()
        elif message.kind is Kind.BYE:
            self.fail(PeerLostError("the receiver was closed"))
        elif message.kind is Kind.REFUSED and message.transfer == 0:
            self.fail(RefusedError(f"the receiver refused this sender: {message.body.decode(errors='replace')}"))
        elif self.current is None or message.transfer != self.current.number or self.current.over:
            # What was sent before the receiver knew that a transfer is over.
            self.ignore("late", message)
        else:
            self.current.take(message)

    def fail(self, error: Exception) -> None:
        super().fail(error)
        if self.current is not None:
            self.current.end(error)


class Outgoing:
    """A transfer from the side of the sender: made by :meth:`Sender.transfer`.

    As a context manager it waits at its end until the receiver has decoded everything, and cancels the transfer if the block raises.
    """

    def __enter__(self) -> Outgoing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self.cancel(f"the sender stopped by {type(error).__name__}")

    def __init__(self, sender: Sender, plan: Plan, coders: list[Codec], singles: list[bool], time_limit: float | None) -> None:
        self._sender = sender
        self._channel = sender._channel
        self._plan = plan
        self._coders = coders
        self._singles = singles
        self._limit = None if time_limit is None else time.monotonic() + time_limit
        self.number = secrets.randbits(63) | 1
        self._credits: list[Credit] = []
        self._free = list(sender._stages)
        #: Frames that are being encoded or written.
        self.flying = 0
        self._given: set[int] = set()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting = 0
        self._accepted = self._done = self._quieted = False
        #: Whether it has come to an end, good or bad.
        self.over = False
        self._error: Exception | None = None
        #: Bytes of frames that were written to the receiver.
        self.wire_nbytes = 0
        #: Bytes of tensors in them.
        self.raw_nbytes = 0
        #: Seconds that encoding took.
        self.encode_seconds = 0.0
        self._thread = threading.Thread(target=self._work, name="splitzip-encode", daemon=True)
        self._channel.current = self
        self._channel.begin()
        try:
            self._channel.say(Kind.START, self.number, plan.pack())
            self._wait(lambda: self._accepted, "the receiver to accept the transfer")
        except BaseException as error:
            self._abandon(error)
            raise
        self._thread.start()

    def send(self, layer: int, tensors: Any) -> Future[int]:
        """Sends a layer: encodes it beside the caller, then writes it. Waits only while as many layers wait for a buffer as there are buffers.

        Layers may come in any order. On a device the tensors are taken as they are after what the current stream has been given so far.

        Parameters
        ----------
        layer
            Its number, from 0.
        tensors
            A list or dict of them, or one if the layer has one. Do not write to them before the result is done.

        Returns
        -------
        concurrent.futures.Future
            Done when the tensors are encoded, with the bytes of the frame.
        """
        self._check()
        if self.over:
            raise ArgumentError("the transfer is over; make another one")
        if not 0 <= layer < len(self._plan.layers) or layer in self._given:
            raise ArgumentError(f"layer {layer} was sent already, or is none of the {len(self._plan.layers)} that were announced")
        job = _Job(layer, self._checked(layer, tensors), now_on(self._sender._cuda), Future())
        self._given.add(layer)
        # As many may wait as there are buffers to come: what is queued holds tensors of the caller.
        self._wait(lambda: self._waiting < len(self._sender._stages), f"a buffer for layer {layer}")
        with self._channel.changed:
            # Together with the look at the error: whoever ends the transfer also ends what is queued.
            self._check()
            self._waiting += 1
            self._jobs.put(job)
        return job.encoded

    def _checked(self, layer: int, tensors: Any) -> list[Any]:
        listed = [tensors] if self._singles[layer] else tensors
        coder = self._coders[self._plan.layers[layer]]
        if isinstance(listed, Mapping) or len(listed) != len(coder._spec):
            return coder._listed(listed, False)
        return list(listed)

    def finish(self) -> None:
        """Waits until the receiver has decoded all layers. Raises what went wrong on either side."""
        missing = len(self._plan.layers) - len(self._given)
        if missing and self._error is None and not self.over:
            raise ArgumentError(f"{missing} layers were not sent; send them before, or cancel the transfer")
        try:
            self._wait(lambda: self._done and self.flying == 0, "the receiver to decode the last layer")
        except BaseException as error:
            self._abandon(error)
            raise
        self._jobs.put(None)

    def cancel(self, reason: str = "the sender cancelled it") -> None:
        """Ends the transfer; nothing of it is written any more when this returns. The receiver sees a :class:`CancelledError`. Does nothing if it is over."""
        if not self.over:
            self._abandon(CancelledError(reason))

    def _abandon(self, error: BaseException) -> None:
        self.end(error if isinstance(error, Exception) else CancelledError(f"the sender was interrupted by {type(error).__name__}"))
        self.settle()

    def settle(self) -> None:
        """After an error: waits until nothing is written any more, and says so."""
        channel = self._channel
        # The receiver gives the slots to nobody else before it knows that nothing is written to them any more.
        limit = time.monotonic() + channel.timeout
        with channel.changed:
            while self.flying and channel.failed is None and time.monotonic() < limit:
                channel.changed.wait(channel.timeout / 10)
        if self.flying:
            channel.fail(PeerLostError("writes of a transfer that was given up do not come to their end; make another sender"))
        self._quiet()

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        """Waits, and raises what has ended the transfer."""
        with self._channel.changed:
            self._channel.wait(lambda: self._error is not None or until(), self._limit, what)
            self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def end(self, error: Exception) -> None:
        """Ends it with an error; the first one counts."""
        with self._channel.changed:
            if not self.over:
                self._error = error
                self.over = True
            self._channel.changed.notify_all()
        self._jobs.put(None)

    def take(self, message: Message) -> None:
        """A message of the receiver about this transfer. Called by the thread of the endpoint."""
        text = message.body.decode(errors="replace")
        if message.kind in (Kind.ACCEPT, Kind.CREDIT):
            with self._channel.changed:
                self._credits += unpack_credits(message.body)
                self._accepted = True
                self._channel.changed.notify_all()
        elif message.kind is Kind.DONE:
            with self._channel.changed:
                self._done = self.over = True
                self._channel.open = False
                self._channel.changed.notify_all()
        elif message.kind is Kind.REFUSED:
            self._quieted = True
            self._channel.open = False
            self.end(RefusedError(f"the receiver refused the transfer: {text}"))
        elif message.kind is Kind.FAILED:
            self.end(TransferError(f"the receiver failed: {text}"))
            self._quiet()
        elif message.kind is Kind.CANCELLED:
            self.end(CancelledError(f"the receiver cancelled the transfer: {text}"))
            self._quiet()
        else:
            self._channel.ignore("unexpected", message)

    def _quiet(self) -> None:
        """After an error: says that nothing is written any more, once that is so. The receiver waits for it, also if it has failed itself."""
        with self._channel.changed:
            if self._error is None or self.flying or self._quieted or self._channel.failed is not None:
                return
            self._quieted = True
            self._channel.open = False
        self._channel.say_if_possible(Kind.CANCELLED, self.number, str(self._error)[:400].encode())

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None or self.over:
                break
            try:
                self._send(job)
            except Exception as error:  # Whatever it is, callers must not wait for this thread.
                self.end(error)
                if not job.encoded.done():
                    job.encoded.set_exception(error)
                if isinstance(error, Error) and not isinstance(error, TransferError):
                    log.warning("layer %d cannot be encoded: %s", job.layer, error)
                self.settle()
                break
        if job is not None and not job.encoded.done():
            job.encoded.cancel()
        with contextlib.suppress(queue.Empty):
            while True:
                left = self._jobs.get_nowait()
                if left is not None:
                    left.encoded.cancel()

    def _send(self, job: _Job) -> None:
        coder, channel = self._coders[self._plan.layers[job.layer]], self._channel
        with channel.changed:
            self._wait(lambda: bool(self._free), "a buffer")
            stage, registration = self._free.pop()
            self._waiting -= 1
            channel.changed.notify_all()
        flight = _Flight(self, (stage, registration), job.layer)
        try:
            stream = self._sender._stream
            if job.ready is not None:
                stream.wait_event(job.ready)
            began = time.perf_counter()
            parts = stage.encode(coder, job.tensors, stream)
            start, stop = next(parts)
            self.encode_seconds += time.perf_counter() - began
            if stop > coder.dense_nbytes or coder.dense_nbytes == coder.max_nbytes:
                job.encoded.set_result(stop)
                flight.write(start, stop, last=True)
            else:
                # The dense part, on its way while the rest comes from the device.
                flight.write(start, stop, last=False)
                for start, stop in parts:
                    flight.write(start, stop, last=False)
                job.encoded.set_result(stop)
                flight.complete(stop)
            self.raw_nbytes += coder.raw_nbytes
        finally:
            flight.land()


class _Flight:
    """A frame on its way: its buffer is free again when all of its writes are complete."""

    def __init__(self, transfer: Outgoing, stage: tuple[Staging, Any], layer: int) -> None:
        self._transfer = transfer
        self._stage = stage
        self._layer = layer
        self._credit: Credit | None = None
        self._writes = 1
        self._nbytes = 0
        with transfer._channel.changed:
            transfer.flying += 1

    def write(self, start: int, stop: int, last: bool) -> None:
        """Writes a part of the frame. The last one of a frame in one part brings the notice along."""
        transfer, channel = self._transfer, self._transfer._channel
        if self._credit is None:
            with channel.changed:
                transfer._wait(lambda: bool(transfer._credits), f"a slot for layer {self._layer}")
                self._credit = transfer._credits.pop(0)
        if self._credit.slot >= len(transfer._sender._to.slots) or stop > transfer._sender._to.slots[self._credit.slot].nbytes:
            raise TransferError(f"the receiver gave slot {self._credit.slot}, which it does not have, or which is smaller than it said")
        with channel.changed:
            transfer._check()
            self._writes += 1
        target = transfer._sender._to.slots[self._credit.slot].part(start, stop)
        source = self._stage[0].memory.part(start, stop)
        notice = self._notice(stop) if last else None
        try:
            channel.endpoint.write(channel, channel.peer, source, target, notice, self.landed)
        except BaseException:
            self.land()
            raise
        transfer.wire_nbytes += stop - start

    def complete(self, nbytes: int) -> None:
        """All parts are written: the notice follows when they are there."""
        self._nbytes = nbytes

    def _notice(self, nbytes: int) -> bytes:
        assert self._credit is not None
        channel = self._transfer._channel
        body = Landed(self._layer, self._credit.slot, self._credit.generation, nbytes).pack()
        return Message(Kind.LANDED, channel.peer_number, channel.number, self._transfer.number, body).pack()

    def landed(self, error: Exception | None) -> None:
        """A write is complete, or has failed. Called by the thread of the endpoint."""
        if error is not None:
            self._transfer._channel.fail(error)
        self.land()

    def land(self) -> None:
        """One of the things that this waits for is over."""
        transfer, channel = self._transfer, self._transfer._channel
        with channel.changed:
            self._writes -= 1
            if self._writes:
                return
            transfer.flying -= 1
            transfer._free.append(self._stage)
            channel.changed.notify_all()
        if self._nbytes and not transfer.over:
            notice = self._notice(self._nbytes)
            try:
                channel.endpoint.call(lambda engine: engine.notify(channel.peer, notice))
            except TransferError as failed:
                channel.fail(failed)
        transfer._quiet()
