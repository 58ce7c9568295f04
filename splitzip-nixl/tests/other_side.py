"""The other side of the tests in `loopback.rs`, in Python: ``other_side.py receive`` or ``other_side.py send ADDRESS``."""

import os
import sys

import numpy as np

import splitzip
from splitzip import transfer

LAYERS, SHAPE = 12, (512, 64)


def words(layer: int, part: int) -> np.ndarray:
    """The same in Rust."""
    return (0x3F80 + (np.arange(SHAPE[0] * SHAPE[1], dtype=np.uint32) * 37 + 5 * layer + part) % 512).astype(np.uint16).reshape(SHAPE)


def main() -> None:
    form = {"k": ("bf16", SHAPE), "v": ("bf16", SHAPE)}
    engine = transfer.NixlEngine()
    if sys.argv[1] == "receive":
        receiver = transfer.Receiver(engine, splitzip.Codec(form, checksums="both").max_nbytes, slots=2, timeout=5, layout_id=7)
        print("address", receiver.address.decode(), flush=True)
        incoming = receiver.accept(time_limit=20)
        seen = 0
        for layer, tensors in incoming.receive(framework="numpy"):
            assert all(np.array_equal(tensor.view(np.uint16), words(layer, part)) for part, tensor in enumerate(tensors)), layer
            seen += 1
        print("received", seen, incoming.wire_nbytes, receiver.counters, flush=True)
    else:
        with transfer.Sender(engine, sys.argv[2].encode(), timeout=5) as sender:
            with sender.transfer(form, layers=LAYERS, layout_id=7, checksums="both") as outgoing:
                for layer in range(LAYERS):
                    outgoing.send(layer, [words(layer, 0), words(layer, 1)])
            print("sent", outgoing.wire_nbytes, flush=True)
    os._exit(0)


main()
