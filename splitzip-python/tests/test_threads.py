"""Threads, processes and references."""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time

import numpy as np
import splitzip
from conftest import assert_same, normal


def test_the_lock_is_released() -> None:
    """While one thread compresses and decompresses, another one runs Python."""
    tensor = normal("bf16", 1 << 23)
    spans: list[tuple[float, float]] = []

    def work() -> None:
        for _ in range(3):
            start = time.perf_counter()
            frame = splitzip.compress(tensor, threads=1)
            middle = time.perf_counter()
            splitzip.decompress(frame, threads=1)
            spans.extend([(start, middle), (middle, time.perf_counter())])

    ticks = []
    worker = threading.Thread(target=work)
    worker.start()
    while worker.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.0005)
    worker.join()
    for start, end in spans:
        inside = sum(start < tick < end for tick in ticks)
        # With the lock held there would be one at most: where it was taken and given back.
        assert inside >= 3, f"{inside} ticks in {1e3 * (end - start):.1f} ms"


def test_two_threads_side_by_side() -> None:
    """Printed, with -s: two threads that code at the same time, beside one after the other."""
    tensor = normal("bf16", 1 << 22)
    frame = splitzip.compress(tensor)
    outs = [np.empty_like(tensor) for _ in range(2)]

    def once(out: np.ndarray) -> None:
        for _ in range(4):
            splitzip.decompress(frame, out=out, threads=1)

    start = time.perf_counter()
    for out in outs:
        once(out)
    serial = time.perf_counter() - start
    threads = [threading.Thread(target=once, args=(out,)) for out in outs]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = time.perf_counter() - start
    print(f"\ntwo threads: {1e3 * serial:.1f} ms one after the other, {1e3 * together:.1f} ms side by side ({serial / together:.2f} x)")
    for out in outs:
        assert_same(out, tensor)


def test_many_threads_at_once() -> None:
    codec = splitzip.Codec(("bf16", (50_000,)))
    tensors = [normal("bf16", 50_000, seed=seed) for seed in range(8)]
    expected = [bytes(splitzip.compress(tensor)) for tensor in tensors]
    wrong = []

    def work(number: int) -> None:
        for _ in range(10):
            frame = codec.encode(tensors[number])
            if bytes(frame) != expected[number]:
                wrong.append(number)
            assert_same(codec.decode(frame), tensors[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_has_threads_of_its_own() -> None:
    tensor = normal("bf16", 300_000)
    expected = bytes(splitzip.compress(tensor))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            frame = splitzip.compress(tensor)
            same = bytes(frame) == expected and bool((splitzip.decompress(frame) == tensor).all())
            status = 0 if same and splitzip.compress(tensor, scheme="auto").nbytes else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_nothing_leaks() -> None:
    """After 10,000 calls, good and bad, there are as many references and as much memory as after the first thousand."""
    tensor = normal("bf16", 2048)
    flat = bytearray(tensor.tobytes())
    bad = b"no frame"
    frame = splitzip.compress(tensor)
    decoded = splitzip.Tensor(flat, "bf16", (2048,))
    watched = [tensor, flat, bad, frame, decoded, splitzip.errors.NotAFrameError]

    def calls(count: int) -> None:
        for _ in range(count):
            splitzip.decompress(splitzip.compress(tensor))
            splitzip.compress(flat, dtype="bf16")
            splitzip.compress(decoded)
            np.from_dlpack(frame)
            try:
                splitzip.decompress(bad)
            except splitzip.NotAFrameError:
                pass

    calls(1000)
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in watched]
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(10_000)
    gc.collect()
    assert [sys.getrefcount(thing) for thing in watched] == counts
    # 10,000 tensors of 4 KiB would be 40 MB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 10_000
    # The buffer is not held any more.
    flat_again = bytearray(16)
    splitzip.compress(flat_again, dtype="bf16")
    flat_again.clear()
