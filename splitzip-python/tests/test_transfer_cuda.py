"""Transfers of tensors on a CUDA device, inside of one process. Needs PyTorch and a GPU: ``python test_transfer_cuda.py`` runs everything without pytest, and fails where there is none;
under pytest it is skipped there, loudly."""

from __future__ import annotations

import pathlib
import sys
import threading
import traceback
from typing import Any

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from memory_engine import MemoryEngine  # noqa: E402

import splitzip  # noqa: E402
from splitzip import transfer  # noqa: E402

if torch is None:
    MISSING = "PyTorch is not installed"
elif not torch.cuda.is_available():
    MISSING = "PyTorch sees no CUDA device"
else:
    MISSING = ""

if __name__ != "__main__" and MISSING:
    import pytest

    pytest.skip(f"SKIPPED: {MISSING}, so NOTHING of transfers on a device was tested", allow_module_level=True)

LAYERS, SHAPE, TIMEOUT = 8, (8, 640, 128), 10.0
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def layer_of(number: int, device: str, dtype: str = "bf16") -> list[Any]:
    random = torch.Generator().manual_seed(number)
    return [torch.randn(SHAPE, generator=random).to(getattr(torch, DTYPES[dtype])).to(device) for _ in range(2)]


def same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and torch.equal(one.cpu().view(torch.uint8), other.cpu().view(torch.uint8))


def move(near: str, far: str, scheme: str, dtype: str = "bf16", out: Any = None, damage: bool = False, side_stream: bool = False) -> None:
    """A whole transfer, from one kind of memory into another one."""
    form = [(dtype, SHAPE)] * 2
    engine = MemoryEngine()
    failure: list[BaseException] = []
    with transfer.Receiver(MemoryEngine(), 2 * splitzip.Codec(form, scheme="stored").max_nbytes, slots=2, device=far, timeout=TIMEOUT) as receiver:

        def run() -> None:
            try:
                with transfer.Sender(engine, receiver.address, device=near, timeout=TIMEOUT) as sender:
                    with sender.transfer(form, layers=LAYERS, scheme=scheme) as outgoing:
                        for layer in range(LAYERS):
                            if side_stream:
                                # The tensors are made on a stream that is busy; the transfer must not look at them before.
                                stream = torch.cuda.Stream()
                                with torch.cuda.stream(stream):
                                    torch.cuda._sleep(20_000_000)
                                    made = [one.clone() for one in layer_of(layer, near, dtype)]
                                    outgoing.send(layer, made)
                            else:
                                outgoing.send(layer, layer_of(layer, near, dtype))
                    assert outgoing.wire_nbytes == engine.written
            except BaseException as error:
                failure.append(error)

        if damage:
            engine.on_write = lambda source, target, notice: (source.part(0, source.nbytes // 2), target.part(0, target.nbytes // 2), notice)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            found = 0
            for layer, tensors in receiver.accept(time_limit=TIMEOUT).receive(out=out, framework="torch"):
                for tensor, expected in zip(tensors, layer_of(layer, "cpu", dtype)):
                    assert str(tensor.device) == far, (tensor.device, far)
                    assert same(tensor, expected), f"layer {layer}"
                found += 1
            assert found == LAYERS and not damage
        except splitzip.FrameError:
            assert damage
        finally:
            thread.join(2 * TIMEOUT)
        assert bool(failure) == damage, failure


def test_every_scheme_from_device_to_device() -> None:
    for scheme in ("raw", "w4", "w3", "w2x3", "w2x2x3"):
        move("cuda:0", "cuda:0", scheme)


def test_every_dtype() -> None:
    for dtype in DTYPES:
        move("cuda:0", "cuda:0", "w2x3", dtype)


def test_device_and_host_understand_each_other() -> None:
    move("cuda:0", "cpu", "w2x3")
    move("cpu", "cuda:0", "w2x3")


def test_memory_of_the_caller() -> None:
    outputs = [[torch.empty(SHAPE, dtype=torch.bfloat16, device="cuda:0") for _ in range(2)] for _ in range(LAYERS)]
    move("cuda:0", "cuda:0", "w2x3", out=outputs)
    for layer, pair in enumerate(outputs):
        assert all(same(one, other) for one, other in zip(pair, layer_of(layer, "cpu")))


def test_tensors_that_are_still_being_made() -> None:
    move("cuda:0", "cuda:0", "w2x3", side_stream=True)


def test_a_payload_that_did_not_all_arrive_is_an_error() -> None:
    for scheme in ("raw", "w2x3"):
        move("cuda:0", "cuda:0", scheme, damage=True)


def main() -> int:
    if MISSING:
        print(f"FAILED: {MISSING}")
        return 1
    failed = 0
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        try:
            test()
            print(f"passed {name}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name}", flush=True)
    print(f"{len(tests) - failed} of {len(tests)} passed on {torch.cuda.get_device_name(0)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
