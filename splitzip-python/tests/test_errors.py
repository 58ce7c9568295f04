"""What is refused, with which exception, and that it says what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import splitzip
from conftest import normal, words_of


def test_every_error_is_one_of_the_package() -> None:
    for name in splitzip.errors.__all__:
        assert issubclass(getattr(splitzip.errors, name), splitzip.Error)
        assert getattr(splitzip, name) is getattr(splitzip.errors, name)
    assert issubclass(splitzip.ArgumentError, ValueError) and issubclass(splitzip.DtypeError, TypeError)
    assert issubclass(splitzip.ChecksumError, splitzip.CorruptError) and issubclass(splitzip.CorruptError, splitzip.FrameError)


@pytest.mark.parametrize(
    ("tensor", "options", "error", "message"),
    [
        (np.zeros(4, np.float32), {}, splitzip.DtypeError, "float32 cannot be coded"),
        (np.zeros(4, np.uint16), {}, splitzip.DtypeError, "say which with dtype="),
        (np.zeros(4, bool), {"dtype": "e4m3"}, splitzip.DtypeError, "bool cannot be coded"),
        (np.zeros(4, np.float16), {"dtype": "bf16"}, splitzip.DtypeError, "the elements are fp16, but dtype=bf16 was given"),
        (np.zeros(4, np.uint16), {"dtype": "e4m3"}, splitzip.DtypeError, "elements of 2 bytes cannot be e4m3, which has 1"),
        (np.zeros(4, ">u2"), {"dtype": "bf16"}, splitzip.DtypeError, "big-endian"),
        (np.zeros(4, object), {"dtype": "bytes"}, splitzip.DtypeError, "have no bytes of their own"),
        (np.zeros(4, np.uint16), {"dtype": "float64"}, splitzip.DtypeError, "there is no dtype 'float64'; it must be one of bf16"),
        (b"123", {"dtype": "bf16"}, splitzip.ArgumentError, "3 bytes are no whole number of bf16 elements"),
        (memoryview(b"abcdef")[::2], {"dtype": "bf16"}, splitzip.ArgumentError, "not side by side"),
        ([1, 2], {}, splitzip.DtypeError, "list is no tensor"),
        (1.5, {}, splitzip.DtypeError, "float is no tensor"),
        (np.zeros(4, np.float16), {"scheme": "zip"}, splitzip.ArgumentError, 'there is no scheme "zip"'),
        (np.zeros(4, np.float16), {"bases": "row"}, splitzip.ArgumentError, 'there is no bases "row"'),
        (np.zeros(4, np.float16), {"checksums": "all"}, splitzip.ArgumentError, "one of none, tensor, chunk, both"),
        (np.zeros(4, np.float16), {"bases": "channel"}, splitzip.ArgumentError, "a multiple of 8"),
        (np.zeros(4, np.float16), {"threads": 0}, splitzip.ArgumentError, "0 threads do nothing"),
        (np.zeros(4, np.float16), {"threads": -1}, splitzip.ArgumentError, "-1 threads do nothing"),
        (np.zeros(4, np.float16), {"threads": "2"}, splitzip.ArgumentError, "threads must be a number of at least 1"),
        (np.zeros(4, np.float16), {"stream": 0}, splitzip.ArgumentError, "leave stream out"),
        (np.zeros(4, np.float16), {"codebook": "x"}, splitzip.ArgumentError, "str is no codebook"),
        (np.zeros(4, np.float16), {"out": b"0" * 4096}, splitzip.ArgumentError, "writable"),
    ],
)
def test_bad_arguments(tensor: object, options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        splitzip.compress(tensor, **options)


def test_pointless_pairs_say_what_to_use() -> None:
    with pytest.raises(splitzip.ArgumentError, match="w4 is pointless for e4m3.*use one of stored, w3, w2x3, w2x2x3"):
        splitzip.compress(normal("e4m3", 64), scheme="w4")


def test_outputs_must_fit() -> None:
    tensor = normal("bf16", 100)
    frame = splitzip.compress(tensor)
    read_only = np.zeros(100, tensor.dtype)
    read_only.flags.writeable = False
    with pytest.raises(splitzip.ArgumentError, match="read-only"):
        splitzip.decompress(frame, out=read_only)
    with pytest.raises(splitzip.BufferSizeError, match="has 198 bytes, but needs 200"):
        splitzip.decompress(frame, out=np.zeros(99, tensor.dtype))
    with pytest.raises(splitzip.DtypeError, match="the elements are fp16, but dtype=bf16"):
        splitzip.decompress(frame, out=np.zeros(100, np.float16))
    with pytest.raises(splitzip.ArgumentError, match="1 outputs for the 2 tensors"):
        splitzip.decompress_batch(splitzip.compress_batch([tensor, tensor]), out=[tensor])


def test_memory_is_not_shared() -> None:
    memory = np.zeros(100_000, np.uint8)
    with pytest.raises(splitzip.ArgumentError, match="shares memory with an input"):
        splitzip.compress(memory[:2000], dtype="bf16", out=memory[1000:])
    frame = splitzip.compress_batch([normal("bf16", 100)] * 2)
    out = np.zeros(150, np.uint16)
    with pytest.raises(splitzip.ArgumentError, match="two outputs share memory"):
        splitzip.decompress_batch(frame, out=[out[:100], out[50:]])


def test_read_only_inputs_are_read() -> None:
    words = words_of(normal("bf16", 100))
    words.flags.writeable = False
    assert splitzip.compress(words, dtype="bf16").nbytes > 0


def test_damaged_frames() -> None:
    tensor = normal("bf16", 20_000)
    good = bytes(splitzip.compress(tensor, checksums="both"))
    with pytest.raises(splitzip.NotAFrameError, match="does not start with SPZFRAME"):
        splitzip.decompress(b"not a frame")
    with pytest.raises(splitzip.NotAFrameError):
        splitzip.decompress(b"")
    for length in [*range(8, 400, 7), len(good) // 2, len(good) - 1]:
        with pytest.raises(splitzip.TruncatedError, match="ends too early"):
            splitzip.decompress(good[:length])
    newer = bytearray(good)
    newer[8] = 2
    with pytest.raises(splitzip.VersionError, match="use a newer splitzip"):
        splitzip.decompress(newer)
    refused = 0
    rng = np.random.default_rng(0)
    for at in [*range(8, 300), *rng.integers(300, len(good), 500)]:
        damaged = bytearray(good)
        damaged[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(splitzip.FrameError) as raised:
            splitzip.decompress(damaged)
        refused += isinstance(raised.value, splitzip.CorruptError)
    assert refused > 700


def test_frames_that_describe_too_much() -> None:
    """Equal chunks of a packed frame cost 6.5 bytes: what it describes may be larger than any memory."""
    zeros = np.broadcast_to(np.zeros((1, 64), np.uint16), (1 << 14, 64))
    frame = splitzip.compress(zeros, dtype="bf16", packed=True)
    assert frame.nbytes < 10_000 and frame.raw_nbytes == 1 << 21
    huge = splitzip.Codec(("bf16", (1 << 52,)))
    for framework in ("numpy", "splitzip"):
        with pytest.raises(splitzip.OutOfMemoryError, match="no memory for a tensor of 9007199254740992 bytes"):
            splitzip._codec.make_outputs(huge._spec, None, framework, None)
    with pytest.raises(splitzip.OutOfMemoryError, match="the system does not give"):
        splitzip.compress_paged(
            splitzip.KvLayout.sglang(layers=1, pages=1 << 45, page_tokens=1, heads=1, head_dim=64, dtype="bf16").bind_consecutive(0, 1 << 45), []
        )


def test_bits_of_another_tensor_fail_the_checksum() -> None:
    stored = bytearray(bytes(splitzip.compress(normal("bf16", 5000), scheme="stored")))
    stored[-300] ^= 0x10
    with pytest.raises(splitzip.ChecksumError, match="the decoded bits have checksum"):
        splitzip.decompress(stored)


def test_without_a_driver_cuda_is_an_error() -> None:
    if splitzip.cuda_devices():
        pytest.skip("SKIPPED: this machine has a CUDA device, so its absence cannot be seen")
    with pytest.raises(splitzip.CudaUnavailableError, match="CUDA is not available"):
        splitzip.Codec(("bf16", (1024,)), device="cuda:0")
    with pytest.raises(splitzip.ArgumentError, match="there is no device 'tpu'"):
        splitzip.Codec(("bf16", (1024,)), device="tpu")

    class Elsewhere:
        __cuda_array_interface__ = {"data": (4096, False), "shape": (8,), "typestr": "<f2", "version": 3}

    with pytest.raises(splitzip.CudaUnavailableError):
        splitzip.compress(Elsewhere(), dtype="bf16")


def test_limits() -> None:
    """A frame that is not trusted gets no more memory than one allows, whatever it describes."""
    zeros = np.zeros((1 << 20, 8), np.float16)
    frame = splitzip.compress(zeros, packed=True)
    assert frame.nbytes * 200 < zeros.nbytes
    for decompress in (splitzip.decompress, splitzip.decompress_batch):
        with pytest.raises(splitzip.LimitError, match=f"{zeros.nbytes} bytes decoded, and at most 1000 are allowed"):
            decompress(bytes(frame), max_bytes=1000)
    assert (splitzip.decompress(frame, max_bytes=zeros.nbytes) == zeros).all()
    out = np.empty_like(zeros)
    splitzip.decompress(frame, out=out, max_bytes=0)
    assert (out == zeros).all()


@pytest.mark.parametrize("threads", [-1, 0, True, "2", 1.5])
def test_threads_that_are_none(threads: object) -> None:
    frame = splitzip.compress(np.zeros(64, np.float16))
    layout = splitzip.KvLayout.sglang(layers=1, pages=4, page_tokens=1, heads=1, head_dim=64, dtype="bf16")
    paged, pools = layout.bind([1, 3], 2), [np.zeros(size, np.uint8) for size in layout.pool_bytes]
    pages = splitzip.compress_paged(paged, pools)
    calls: list[Callable[[Any], Any]] = [
        lambda value: splitzip.compress(np.zeros(64, np.float16), threads=value),
        lambda value: splitzip.decompress(frame, threads=value),
        lambda value: splitzip.Codec(("bf16", (64,)), threads=value),
        lambda value: splitzip.compress_paged(paged, pools, threads=value),
        lambda value: splitzip.decompress_paged(pages, paged, pools, threads=value),
        lambda value: splitzip.PagedCodec(paged, pools, threads=value),
    ]
    for call in calls:
        with pytest.raises(splitzip.ArgumentError, match="threads"):
            call(threads)
        call(np.int64(2))


@pytest.mark.parametrize("tokens", [-1, 5, [0, 2], (0,), (0, 1, 2), (-1, 2), (0, -2), (0, "2"), (0, 1.5), (False, True), "02"])
def test_tokens_that_are_none(tokens: object) -> None:
    layout = splitzip.KvLayout.sglang(layers=1, pages=4, page_tokens=1, heads=1, head_dim=64, dtype="bf16")
    paged, pools = layout.bind([1, 3], 2), [np.zeros(size, np.uint8) for size in layout.pool_bytes]
    frame = splitzip.compress_paged(paged, pools)
    with pytest.raises(splitzip.ArgumentError, match=r"tokens must be a tuple \(start, stop\)"):
        splitzip.decompress_paged(frame, paged, pools, tokens=tokens)  # type: ignore[arg-type]
    splitzip.decompress_paged(frame, paged, pools, tokens=(np.int64(0), 2))


@pytest.mark.parametrize("engine", ["lmcache", "vllm", "sglang"])
def test_without_its_engine_an_integration_says_what_installs_it(engine: str) -> None:
    """In an interpreter of its own, which has no such package, whatever is installed."""
    code = f"import sys; sys.modules[{engine!r}] = None; import splitzip.{engine}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and f"ImportError: splitzip.{engine} needs" in ran.stderr and f"pip install 'splitzip[{engine}]'" in ran.stderr, ran.stderr
