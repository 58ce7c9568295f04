"""Everything that can go wrong with a transfer, inside of one process: the other side never gets wrong data for right ones, nobody hangs, and the pair goes on wherever it can."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from conftest import NUMPY
from transfer_pair import FORM, SHAPE, TIMEOUT, Background, check, is_kind, landed_with, layer_of, pair

import splitzip
from splitzip import transfer
from splitzip.transfer._messages import Kind, Message

# A thread that dies would leave others waiting.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


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
