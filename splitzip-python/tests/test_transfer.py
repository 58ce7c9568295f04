"""Transfers inside of one process: what arrives, what holds them up, and everything that can go wrong. The engines that move bytes between processes have tests of
their own in ``test_transfer_engines.py``; the messages and the codec are the same here."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import MEMBERS, NUMPY, assert_same, normal
from memory_engine import MemoryEngine

import splitzip
from splitzip import transfer
from splitzip.transfer import _staging
from splitzip.transfer._messages import Kind, Landed, Message

# A thread that dies would leave others waiting.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

TIMEOUT = 5.0
SHAPE = (96, 64)
FORM = [("bf16", SHAPE), ("bf16", SHAPE)]
SLOT = splitzip.Codec(FORM).max_nbytes


def layer_of(number: int, dtype: str = "bf16", shape: tuple[int, ...] = SHAPE) -> list[np.ndarray]:
    return [normal(dtype, *shape, seed=2 * number + part) for part in range(2)]


class Pair:
    """A sender and a receiver, and what goes on between them."""

    def __init__(self, **options: Any) -> None:
        receiver = {key: options.pop(key) for key in ("slots", "layout_id") if key in options}
        timeout = options.get("timeout", TIMEOUT)
        self.near, self.far = MemoryEngine(), MemoryEngine()
        self.receiver = transfer.Receiver(self.far, options.pop("slot_nbytes", SLOT), timeout=timeout, **receiver)
        self.sender = transfer.Sender(self.near, self.receiver.address, **{"timeout": timeout, **options})

    def send(self, layers: int, **options: Any) -> Background:
        def run() -> Any:
            with self.sender.transfer(FORM, layers=layers, **options) as outgoing:
                for layer in range(layers):
                    outgoing.send(layer, layer_of(layer))
            return outgoing

        return Background(run)

    def works(self) -> None:
        """Whole transfers still go through."""
        sent = self.send(3)
        check(self.receiver.accept(time_limit=TIMEOUT), 3)
        sent.result()

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


class Background:
    """A call in a thread of its own."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[], Any]) -> None:
        try:
            self._value = run()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        self._thread.join(4 * TIMEOUT)
        assert not self._thread.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._value


@contextlib.contextmanager
def pair(**options: Any) -> Iterator[Pair]:
    made = Pair(**options)
    try:
        yield made
    finally:
        made.close()


def check(incoming: transfer.Incoming, layers: int) -> None:
    """All layers land, once each, bit for bit."""
    found = []
    for layer, tensors in incoming.receive(framework="numpy", time_limit=4 * TIMEOUT):
        for tensor, expected in zip(tensors, layer_of(layer), strict=True):
            assert_same(tensor, expected)
        found.append(layer)
    assert sorted(found) == list(range(layers))


def landed_with(message: bytes, **changes: int) -> bytes:
    """A notice with other numbers; what is no notice stays."""
    parsed = Message.unpack(message)
    if parsed is None or parsed.kind is not Kind.LANDED:
        return message
    landed = Landed.unpack(parsed.body)
    assert landed is not None
    return parsed._replace(body=landed._replace(**changes).pack()).pack()


def is_kind(message: bytes, kind: Kind) -> bool:
    parsed = Message.unpack(message)
    return parsed is not None and parsed.kind is kind


@pytest.mark.parametrize("scheme", ["raw", "w4", "w3", "w2x3", "w2x2x3"])
def test_layers_arrive_bit_for_bit_and_only_the_frames_are_moved(scheme: str) -> None:
    with pair() as both:
        sent = both.send(9, scheme=scheme)
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        assert incoming.layers == 9
        check(incoming, 9)
        outgoing = sent.result()
        frame = splitzip.compress_batch(layer_of(0), scheme="stored" if scheme == "raw" else scheme)
        assert outgoing.wire_nbytes == incoming.wire_nbytes == both.near.written
        assert abs(outgoing.wire_nbytes / 9 - frame.nbytes) < 0.02 * frame.nbytes
        assert outgoing.raw_nbytes == incoming.raw_nbytes == 9 * 2 * 96 * 64 * 2
        assert both.sender.counters == both.receiver.counters == {}


@pytest.mark.parametrize(("dtype", "scheme"), MEMBERS)
def test_every_member(dtype: str, scheme: str) -> None:
    form = [(dtype, SHAPE)] * 2
    with pair(slot_nbytes=1 << 20) as both:

        def run() -> None:
            with both.sender.transfer(form, scheme=scheme) as outgoing:
                outgoing.send(0, layer_of(0, dtype))

        sent = Background(run)
        ((_, tensors),) = both.receiver.accept(time_limit=TIMEOUT).receive(framework="numpy")
        for tensor, expected in zip(tensors, layer_of(0, dtype), strict=True):
            assert_same(tensor, expected)
        sent.result()


def test_layers_may_differ_come_in_any_order_and_go_into_memory_of_the_caller() -> None:
    shapes = [(10, 8), (0, 8), (300, 16), (1, 1)]
    layers = [("fp16", shape) for shape in shapes]
    data = [normal("fp16", *shape, seed=number) for number, shape in enumerate(shapes)]
    outputs = [np.empty(shape, np.float16) for shape in shapes]
    with pair(slots=1) as both:

        def run() -> None:
            with both.sender.transfer(layers=layers) as outgoing:
                sizes = [outgoing.send(layer, data[layer]) for layer in (2, 0, 3, 1)]
            assert all(size.result() > 0 for size in sizes)

        sent = Background(run)
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        assert [incoming.tensors(layer)[0][3] for layer in range(4)] == shapes
        order = [layer for layer, _ in incoming.receive(out=outputs)]
        assert order == [2, 0, 3, 1]
        sent.result()
    for output, expected in zip(outputs, data, strict=True):
        assert_same(output, expected)


def test_one_pair_does_many_transfers_of_growing_layers() -> None:
    with pair(slot_nbytes=1 << 20) as both:
        for tokens in (16, 4000, 100):

            def run(tokens: int = tokens) -> None:
                with both.sender.transfer(("bf16", (tokens, 64)), layers=2) as outgoing:
                    for layer in range(2):
                        outgoing.send(layer, normal("bf16", tokens, 64, seed=layer))

            sent = Background(run)
            for layer, (tensor,) in both.receiver.accept(time_limit=TIMEOUT).receive(framework="numpy"):
                assert_same(tensor, normal("bf16", tokens, 64, seed=layer))
            sent.result()


def test_several_pairs_share_two_engines() -> None:
    near, far = MemoryEngine(), MemoryEngine()
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(transfer.Receiver(far, SLOT, timeout=TIMEOUT)) for _ in range(3)]
        senders = [stack.enter_context(transfer.Sender(near, one.address, timeout=TIMEOUT)) for one in receivers]

        def run(sender: transfer.Sender) -> None:
            with sender.transfer(FORM, layers=5) as outgoing:
                for layer in range(5):
                    outgoing.send(layer, layer_of(layer))

        sent = [Background(lambda sender=sender: run(sender)) for sender in senders]
        for receiver in receivers:
            check(receiver.accept(time_limit=TIMEOUT), 5)
        for one in sent:
            one.result()


def test_a_slow_receiver_holds_up_the_sender() -> None:
    with pair(slots=2, buffers=1) as both:
        sent = both.send(20)
        layers = both.receiver.accept(time_limit=TIMEOUT).receive(framework="numpy")
        next(layers)
        time.sleep(0.3)
        frame = splitzip.compress_batch(layer_of(0)).nbytes
        # One was decoded, two fill the slots; what else is encoded waits on the side of the sender.
        assert 2.9 * frame < both.near.written < 3.1 * frame
        assert sum(1 for _ in layers) == 19
        sent.result()


def test_a_sender_waits_for_buffers() -> None:
    with pair(slots=1, buffers=2) as both:
        given = []

        def run() -> None:
            with both.sender.transfer(FORM, layers=12) as outgoing:
                for layer in range(12):
                    outgoing.send(layer, layer_of(layer))
                    given.append(layer)

        sent = Background(run)
        layers = both.receiver.accept(time_limit=TIMEOUT).receive()
        next(layers)
        time.sleep(0.3)
        # Two were written (one of them is decoded), two are in buffers, two wait for one.
        assert len(given) <= 7
        assert sum(1 for _ in layers) == 11
        sent.result()


@pytest.mark.parametrize("lost", [None, 0, 1])
def test_the_dense_part_may_be_sent_first(monkeypatch: pytest.MonkeyPatch, lost: int | None) -> None:
    """As from a device: two writes for a frame, and a notice of its own when both are there."""
    whole = _staging.Staging.encode

    def in_two(stage: Any, codec: splitzip.Codec, tensors: Any, stream: Any) -> Iterator[tuple[int, int]]:
        ((_, nbytes),) = whole(stage, codec, tensors, stream)
        yield 0, codec.dense_nbytes
        yield codec.dense_nbytes, nbytes

    monkeypatch.setattr(_staging.Staging, "encode", in_two)
    writes: list[tuple[int, bytes | None]] = []

    def on_write(source: transfer.Memory, target: transfer.Memory, notice: bytes | None) -> Any:
        writes.append((source.nbytes, notice))
        if lost is not None and len(writes) % 2 == lost:
            return source.part(0, 0), target.part(0, 0), notice
        return source, target, notice

    with pair(slots=2) as both:
        both.near.on_write = on_write
        sent = both.send(5)
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        if lost is not None:
            with pytest.raises(splitzip.FrameError):
                check(incoming, 5)
            with pytest.raises(transfer.TransferError):
                sent.result()
            return
        check(incoming, 5)
        sent.result()
        dense = splitzip.Codec(FORM).dense_nbytes
        assert [nbytes == dense for nbytes, _ in writes] == [True, False] * 5
        assert all(notice is None for _, notice in writes)


@pytest.mark.parametrize("scheme", ["raw", "w2x3"])
@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_a_payload_that_did_not_all_arrive_is_an_error(scheme: str, kept: float) -> None:
    """Also where a frame of the same form, which was decoded before, is still in the slot."""
    with pair(slots=1) as both:
        writes = 0

        def cut(source: transfer.Memory, target: transfer.Memory, notice: bytes | None) -> Any:
            nonlocal writes
            writes += 1
            if writes < 3:
                return source, target, notice
            nbytes = int(source.nbytes * kept)
            return source.part(0, nbytes), target.part(0, nbytes), notice

        both.near.on_write = cut
        sent = both.send(4, scheme=scheme)
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        layers = incoming.receive(framework="numpy")
        assert [next(layers)[0], next(layers)[0]] == [0, 1]
        with pytest.raises(splitzip.FrameError):
            next(layers)
        with pytest.raises(transfer.TransferError, match="the receiver failed"):
            sent.result()
        both.near.on_write = None
        both.works()


@pytest.mark.parametrize("nbytes", [0, 1, 500, 1 << 40, -4, 4])
def test_a_wrong_length_in_a_notice_is_an_error(nbytes: int) -> None:
    with pair() as both:

        def lie(source: transfer.Memory, target: transfer.Memory, notice: bytes | None) -> Any:
            assert notice is not None
            wrong = nbytes if nbytes not in (-4, 4) else source.nbytes + nbytes
            return source, target, landed_with(notice, nbytes=wrong)

        both.near.on_write = lie
        sent = both.send(2)
        outputs = [np.full(SHAPE, 7, np.uint16) for _ in range(2)]
        with pytest.raises(splitzip.FrameError, match="not decoded|bytes"):
            for _ in both.receiver.accept(time_limit=TIMEOUT).receive(out=lambda _: [output.view(NUMPY["bf16"]) for output in outputs]):
                pass
        # Refused before anything was written.
        assert all((output == 7).all() for output in outputs)
        with pytest.raises(transfer.TransferError):
            sent.result()
        both.near.on_write = None
        both.works()


def test_duplicate_notices_change_nothing() -> None:
    with pair() as both:
        both.near.on_notify = lambda message: [message, message] if is_kind(message, Kind.LANDED) else [message]
        sent = both.send(6)
        check(both.receiver.accept(time_limit=TIMEOUT), 6)
        sent.result()
        time.sleep(0.05)
        counters = both.receiver.counters
        assert sum(counters.values()) == 6 and set(counters) <= {"ignored_duplicate", "ignored_late"}, counters


def test_late_and_foreign_messages_change_nothing() -> None:
    kept: list[bytes] = []
    with pair() as both:

        def keep(message: bytes) -> list[bytes]:
            kept.append(message)
            return [message]

        both.near.on_notify = keep
        sent = both.send(3)
        check(both.receiver.accept(time_limit=TIMEOUT), 3)
        sent.result()
        both.near.on_notify = None
        # Notices of the first transfer while the second one is going on, from the sender and from somebody else; and what is no message at all.
        old = [message for message in kept if is_kind(message, Kind.LANDED)]
        parsed = [Message.unpack(message) for message in old]
        strangers = [message._replace(sender=message.sender ^ 2).pack() for message in parsed if message is not None]
        sent = both.send(3)
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        both.far.inbox += old + strangers + [b"", b"SPZT", b"x" * 3000, old[0][:-1], old[0] + b"y"]
        check(incoming, 3)
        sent.result()
        counters = both.receiver.counters
        assert counters["ignored_late"] == 5 and counters["ignored_foreign"] == 3, counters
        assert both.receiver._channel.endpoint.foreign == 3


def test_numbers_that_were_never_given_are_not_believed() -> None:
    """Slots and generations that nobody has, in a notice of the right sender and transfer."""
    with pair() as both:

        def more(message: bytes) -> list[bytes]:
            if not is_kind(message, Kind.LANDED):
                return [message]
            return [landed_with(message, slot=77), landed_with(message, generation=12345), message]

        both.near.on_notify = more
        sent = both.send(2)
        check(both.receiver.accept(time_limit=TIMEOUT), 2)
        sent.result()
        assert both.receiver.counters["ignored_foreign"] >= 3


def test_a_layer_that_was_not_announced_is_an_error() -> None:
    with pair() as both:
        both.near.on_notify = lambda message: [landed_with(message, layer=9)]
        sent = both.send(2)
        with pytest.raises(splitzip.CorruptError, match="announced only 2 layers"):
            check(both.receiver.accept(time_limit=TIMEOUT), 2)
        with pytest.raises(transfer.TransferError):
            sent.result()


def test_another_layout_is_refused_before_anything_is_written() -> None:
    with pair(layout_id=0xABC) as both:
        with pytest.raises(transfer.RefusedError, match="its layout is 0xdef, and this side takes 0xabc only"):
            both.sender.transfer(FORM, layers=2, layout_id=0xDEF)
        assert both.near.written == 0
        sent = both.send(2, layout_id=0xABC)
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        assert incoming.layout_id() == 0xABC
        check(incoming, 2)
        sent.result()


def test_other_tensors_than_are_expected_are_refused_before_anything_is_written() -> None:
    with pair() as both:
        for expected, layers in (([("bf16", SHAPE)], 2), ([("fp16", SHAPE)] * 2, 2), ([("bf16", (64, 96))] * 2, 2), (FORM, 3)):
            sent = both.send(2)
            with pytest.raises(splitzip.ArgumentError, match="the transfer was refused"):
                both.receiver.accept(time_limit=TIMEOUT).expect(expected, layers)
            with pytest.raises(transfer.RefusedError, match="expected"):
                sent.result()
        assert both.near.written == 0
        sent = both.send(2)
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        incoming.expect(FORM, 2)
        check(incoming, 2)
        sent.result()


def test_a_frame_that_is_too_large_for_the_slots_is_refused() -> None:
    with pair(slot_nbytes=SLOT - 1) as both:
        with pytest.raises(transfer.RefusedError, match=f"may have {SLOT} bytes, and the slots here have {SLOT - 1}"):
            both.sender.transfer(FORM)
        assert both.near.written == 0


def test_a_frame_of_another_form_than_announced_is_not_decoded() -> None:
    """As a sender with a mistake would send it: everything is right but the frame."""
    with pair() as both:
        other = splitzip.compress_batch(layer_of(0), layout_id=5)

        def swap(source: transfer.Memory, target: transfer.Memory, notice: bytes | None) -> Any:
            stage = next(stage for stage, _ in both.sender._stages if stage.memory.address == source.address)
            stage.host[: other.nbytes] = other.data
            return source.part(0, other.nbytes), target.part(0, other.nbytes), landed_with(notice, nbytes=other.nbytes)

        both.near.on_write = swap
        sent = both.send(1)
        with pytest.raises(splitzip.CorruptError, match="of another form than was announced"):
            check(both.receiver.accept(time_limit=TIMEOUT), 1)
        with pytest.raises(transfer.TransferError):
            sent.result()


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_a_peer_that_is_lost_is_an_error(who: str) -> None:
    with pair(timeout=1.0, slots=1) as both:
        sent = both.send(50)
        layers = both.receiver.accept(time_limit=TIMEOUT).receive()
        next(layers)
        (both.near if who == "sender" else both.far).close()
        began = time.monotonic()
        with pytest.raises(transfer.TransferError):
            for _ in layers:
                pass
        with pytest.raises(transfer.TransferError):
            sent.result()
        assert time.monotonic() - began < 4
        # Nobody knows whether the lost one still writes, so nobody else may.
        with pytest.raises(transfer.TransferError):
            both.receiver.accept(time_limit=0.1)


@pytest.mark.parametrize("method", ["done", "messages", "write", "notify"])
def test_an_engine_with_a_mistake_is_an_error(method: str) -> None:
    """Also one that raises what no engine should."""
    with pair(timeout=1.0, slots=1) as both:
        sent = both.send(50)
        layers = both.receiver.accept(time_limit=TIMEOUT).receive()
        next(layers)

        def broken(*arguments: Any) -> Any:
            raise ZeroDivisionError("a mistake")

        setattr(both.near, method, broken)
        with pytest.raises((ZeroDivisionError, transfer.TransferError)):
            sent.result()
        with pytest.raises(transfer.TransferError):
            for _ in layers:
                pass
        delattr(both.near, method)


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_silence_is_an_error(who: str) -> None:
    """A process that was stopped, or a network that drops everything: no call fails, and nothing comes."""
    with pair(timeout=0.5, slots=1) as both:
        sent = both.send(50)
        layers = both.receiver.accept(time_limit=TIMEOUT).receive()
        next(layers)
        (both.near if who == "sender" else both.far).silent = True
        with pytest.raises(transfer.TransferError):
            for _ in layers:
                pass
        with pytest.raises(transfer.TransferError):
            sent.result()


def test_a_side_that_takes_its_time_is_not_taken_for_dead() -> None:
    with pair(timeout=0.4) as both:

        def run() -> None:
            with both.sender.transfer(FORM, layers=2) as outgoing:
                outgoing.send(0, layer_of(0))
                time.sleep(1.2)
                outgoing.send(1, layer_of(1))

        sent = Background(run)
        time.sleep(0.6)
        layers = both.receiver.accept(time_limit=TIMEOUT).receive()
        next(layers)
        time.sleep(1.5)
        next(layers)
        assert list(layers) == []
        sent.result()


def test_time_limits() -> None:
    with pair() as both:
        with pytest.raises(transfer.TransferTimeoutError, match="waiting for a sender"):
            both.receiver.accept(time_limit=0.05)
        with pytest.raises(transfer.TransferTimeoutError, match="waiting for the receiver to accept"):
            both.sender.transfer(FORM, time_limit=0.1)
        # What the sender gave up may still be there to be accepted, until it says so.
        time.sleep(0.1)
        sent = Background(lambda: both.sender.transfer(FORM, layers=2))
        layers = both.receiver.accept(time_limit=TIMEOUT).receive(time_limit=0.2)
        with pytest.raises(transfer.TransferTimeoutError, match="layer 1 of 2 to land"):
            next(layers)
        sent.result()
        both.works()


def test_a_sender_cancels() -> None:
    with pair() as both:

        def run() -> None:
            with both.sender.transfer(FORM, layers=3) as outgoing:
                outgoing.send(0, layer_of(0)).result()
                raise KeyError("the model failed")

        sent = Background(run)
        with pytest.raises(transfer.CancelledError, match="the sender gave up: the sender stopped by KeyError"):
            check(both.receiver.accept(time_limit=TIMEOUT), 3)
        with pytest.raises(KeyError):
            sent.result()
        both.works()


def test_a_receiver_leaves_early() -> None:
    with pair(slots=1, buffers=1) as both:
        sent = both.send(30)
        for layer, _ in both.receiver.accept(time_limit=TIMEOUT).receive():
            if layer == 1:
                break
        with pytest.raises(transfer.CancelledError, match="the receiver left the loop"):
            sent.result()
        both.works()


def test_cancel_waits_for_writes_that_are_on_their_way() -> None:
    with pair(timeout=3.0) as both:
        both.near.stuck = True
        sent = both.send(2)
        layers = both.receiver.accept(time_limit=TIMEOUT)
        waiting = Background(lambda: list(layers.receive()))
        time.sleep(0.1)
        cancelling = Background(layers.cancel)
        time.sleep(0.2)
        assert cancelling._thread.is_alive()
        both.near.stuck = False
        cancelling.result()
        for one in (waiting, sent):
            with pytest.raises(transfer.CancelledError):
                one.result()
        both.works()


def test_slots_that_may_still_be_written_to_are_given_to_nobody() -> None:
    with pair(timeout=0.6) as both:
        both.near.stuck = True
        sent = both.send(2)
        layers = both.receiver.accept(time_limit=TIMEOUT)
        waiting = Background(lambda: list(layers.receive()))
        time.sleep(0.1)
        layers.cancel()
        with pytest.raises(transfer.TransferError, match="make another receiver|nothing was heard"):
            both.receiver.accept(time_limit=0.1)
        for one in (waiting, sent):
            with pytest.raises(transfer.TransferError):
                one.result()


def test_tensors_of_another_shape_end_the_transfer_on_both_sides() -> None:
    with pair() as both:

        def run() -> Any:
            with both.sender.transfer(FORM, layers=2) as outgoing:
                return outgoing.send(0, layer_of(0, shape=(64, 96))).result()

        sent = Background(run)
        with pytest.raises(transfer.CancelledError, match="shape"):
            check(both.receiver.accept(time_limit=TIMEOUT), 2)
        with pytest.raises(splitzip.ArgumentError, match="has the shape"):
            sent.result()
        both.works()


def test_a_second_sender_waits_its_turn() -> None:
    with pair() as both:
        sent = Background(lambda: both.sender.transfer(FORM, layers=1))
        incoming = both.receiver.accept(time_limit=TIMEOUT)
        layers = incoming.receive()
        waiting = Background(lambda: list(layers))
        outgoing = sent.result()
        with pytest.raises(transfer.RefusedError, match="another sender is in the middle of a transfer"):
            transfer.Sender(MemoryEngine(), both.receiver.address, timeout=TIMEOUT)
        outgoing.send(0, layer_of(0))
        outgoing.finish()
        assert len(waiting.result()) == 1
        # Between transfers a new one takes the place of the old one.
        with transfer.Sender(MemoryEngine(), both.receiver.address, timeout=TIMEOUT) as second:

            def run() -> None:
                with second.transfer(FORM) as other:
                    other.send(0, layer_of(0))

            sent = Background(run)
            check(both.receiver.accept(time_limit=TIMEOUT), 1)
            sent.result()
            with pytest.raises(transfer.PeerLostError):
                both.sender.transfer(FORM)


def test_what_callers_do_wrong() -> None:
    engine = MemoryEngine()
    with pytest.raises(splitzip.ArgumentError, match="this is no address of a receiver"):
        transfer.Sender(engine, b"{}")
    with pytest.raises(splitzip.ArgumentError, match="give at least 1"):
        transfer.Receiver(engine, SLOT, slots=0)
    with pair() as both:
        other = MemoryEngine()
        other.name = "carrier pigeon"
        with pytest.raises(splitzip.ArgumentError, match="the receiver is on memory, and this engine is carrier pigeon"):
            transfer.Sender(other, both.receiver.address)
        with pytest.raises(splitzip.ArgumentError, match="at least one layer"):
            both.sender.transfer(FORM, layers=0)
        with pytest.raises(splitzip.ArgumentError, match="there is no scheme|scheme"):
            both.sender.transfer(FORM, scheme="zip")
        sent = Background(lambda: both.sender.transfer(FORM, layers=2))
        layers = both.receiver.accept(time_limit=TIMEOUT).receive()
        waiting = Background(lambda: list(layers))
        outgoing = sent.result()
        with pytest.raises(splitzip.ArgumentError, match="is not over"):
            both.sender.transfer(FORM)
        outgoing.send(0, layer_of(0))
        for layer in (0, 2, -1):
            with pytest.raises(splitzip.ArgumentError, match="was sent already, or is none of the 2"):
                outgoing.send(layer, layer_of(0))
        with pytest.raises(splitzip.ArgumentError, match="1 layers were not sent"):
            outgoing.finish()
        with pytest.raises(splitzip.ArgumentError, match="1 tensors were given for the 2"):
            outgoing.send(1, [layer_of(1)[0]])
        outgoing.send(1, layer_of(1))
        outgoing.finish()
        waiting.result()
        with pytest.raises(splitzip.ArgumentError, match="is over"):
            outgoing.send(1, layer_of(1))
    with pytest.raises(splitzip.ArgumentError, match="a link has a speed"):
        transfer.ShapedEngine(engine, 0)


def test_a_shaped_link_takes_as_long_as_it_says() -> None:
    near, far = MemoryEngine(), MemoryEngine()
    with transfer.Receiver(far, SLOT, timeout=TIMEOUT) as receiver:
        with transfer.Sender(transfer.ShapedEngine(near, 0.004), receiver.address, timeout=TIMEOUT) as sender:

            def run() -> float:
                began = time.monotonic()
                with sender.transfer(FORM, layers=6, scheme="raw") as outgoing:
                    for layer in range(6):
                        outgoing.send(layer, layer_of(layer))
                return time.monotonic() - began

            sent = Background(run)
            check(receiver.accept(time_limit=TIMEOUT), 6)
            seconds, expected = sent.result(), near.written / (0.004e9 / 8)
            assert expected <= seconds < 1.5 * expected
