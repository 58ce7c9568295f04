"""A sender and a receiver in one process, for tests: what goes on between them, and threads that must not hang."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from conftest import assert_same, normal
from memory_engine import MemoryEngine

import splitzip
from splitzip import transfer
from splitzip.transfer._messages import Kind, Landed, Message

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
