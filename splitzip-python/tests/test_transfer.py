"""Transfers inside of one process: what arrives, what holds them up, and what is refused. The engines that move bytes between processes have tests of their own in
``test_transfer_engines.py``; the messages and the codec are the same here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import MEMBERS, assert_same, normal
from memory_engine import MemoryEngine
from transfer_pair import FORM, SHAPE, SLOT, TIMEOUT, Background, check, layer_of, pair

import splitzip
from splitzip import transfer
from splitzip.transfer import _staging

# A thread that dies would leave others waiting.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


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


@pytest.mark.parametrize("names", [["", ""], ["k", "v"], ["keys", "größer"]])
def test_the_length_is_looked_for_where_it_is(names: list[str]) -> None:
    frame = splitzip.compress_batch(layer_of(0), names=names)
    start = _staging.words_at(frame._spec)
    assert start == int.from_bytes(frame.data[20:24], "little")
    assert _staging._length(frame._spec, frame.data) == frame.nbytes


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
