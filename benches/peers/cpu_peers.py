"""blosc2 and ZipNN on one thread of the CPU, with a copy beside them.

The codecs take turns, round by round, so that a machine whose speed drifts slows all of them down alike. Each call gets a fresh
copy of the bytes: ZipNN rearranges its input in place.
"""

import importlib.metadata
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from rows import Row, spread
from tensors import Tensors

ZIPNN_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
# What encodes, what decodes, and what overwrites the memory that it decodes into.
Codec = tuple[Callable[[bytearray], bytes], Callable[[bytes], object], Callable[[], None]]


def name_of_cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            return next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def blosc2_codec(tensors: Tensors, size: int) -> Codec:
    import blosc2

    settings = {"codec": blosc2.Codec.ZSTD, "clevel": 1, "filters": [blosc2.Filter.SHUFFLE], "typesize": tensors.value_bytes}
    out = bytearray(size)

    def decode(frame: bytes) -> bytearray:
        blosc2.decompress2(frame, dst=out, nthreads=1)
        return out

    def spoil() -> None:
        out[:] = b"\xa5" * size

    return lambda raw: blosc2.compress2(raw, nthreads=1, **settings), decode, spoil


def zipnn_codec(tensors: Tensors, _size: int) -> Codec:
    with warnings.catch_warnings():  # torch says that it will change something which is not used here
        warnings.simplefilter("ignore")
        from zipnn import ZipNN

    codec = ZipNN(input_format="byte", bytearray_dtype=ZIPNN_DTYPES[tensors.dtype], threads=1)
    return codec.compress, codec.decompress, lambda: None  # it decodes into new memory


PEERS = {
    "blosc2": ("zstd level 1, byte shuffle, 1 thread", blosc2_codec),
    "zipnn": ("1 thread", zipnn_codec),
}


def seconds(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure(tensors: Tensors, sizes: list[int], rounds: int) -> Iterator[Row]:
    for size in sizes:
        yield from measure_size(tensors, size, rounds)


def measure_size(tensors: Tensors, size: int, rounds: int) -> Iterator[Row]:
    raw = tensors.tiled(size)
    expected, out = raw.tobytes(), np.zeros_like(raw)
    codecs, copies = {}, []
    head = {"device": "CPU", "data": tensors.name, "dtype": tensors.dtype, "raw_bytes": size}
    for name, (settings, make) in PEERS.items():
        settings = f"{importlib.metadata.version(name)}, {settings}"
        codecs[name] = (settings, make(tensors, size), ([], []))
    frames, wrong = {}, set()
    for number in range(rounds + 1):  # the first one warms up
        took, _ = seconds(lambda: np.copyto(out, raw))
        copies += [took] * bool(number)
        for name, (_, (encode, decode, spoil), (encoded, decoded)) in codecs.items():
            fresh = bytearray(expected)
            took, frames[name] = seconds(lambda: encode(fresh))
            encoded += [took] * bool(number)
            spoil()
            took, back = seconds(lambda: decode(frames[name]))
            decoded += [took] * bool(number)
            if back != expected:
                wrong.add(name)
    copied = statistics.median(copies)
    yield Row(**head, codec="copy", settings=f"{name_of_cpu()}, 1 thread", ratio=1.0, encode_seconds=copied, decode_seconds=copied,
              copy_seconds=copied, verified=bool((out == raw).all()), spread=(spread(copies),) * 2)
    for name, (settings, _, (encoded, decoded)) in codecs.items():
        yield Row(**head, codec=name, settings=settings, ratio=size / len(frames[name]), copy_seconds=copied,
                  encode_seconds=statistics.median(encoded), decode_seconds=statistics.median(decoded), verified=name not in wrong,
                  spread=(spread(encoded), spread(decoded)))
