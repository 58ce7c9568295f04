"""nvCOMP on a GPU, through its own Python package, with a device copy beside it.

Two ways to use it, since both are what people do:

- `stream`: one buffer in, one buffer out; nvCOMP cuts it into chunks, and places them behind each other (its native bitstream).
- `batch`: one chunk an array, each with a slot of its own for the worst case (the raw bitstream). Nothing is placed, so what
  would be sent is not in one piece; faster for that. Its ratio counts 8 bytes a chunk for the sizes that a reader needs.

Buffers and configurations are made before the clock starts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from nvidia import nvcomp

from device import Buffer, CudaError, Device
from rows import Row
from tensors import Tensors

KIB = 1 << 10
CHUNKS = (64 * KIB, 256 * KIB)
SIZE_BYTES = 8


@dataclass(frozen=True)
class Codec:
    algorithm: str
    value_type: str
    chunk: int
    batch: bool
    options: dict = field(default_factory=dict)
    note: str = ""

    @property
    def settings(self) -> str:
        form = "batch" if self.batch else "stream"
        return ", ".join(filter(None, [self.value_type, f"{self.chunk // KIB} KiB", form, self.note]))

    @property
    def array_type(self) -> str:
        """What the values are as an array; there is no type of arrays for fp8."""
        return self.value_type.replace("|f1", "|u1")

    def open(self, device: Device) -> nvcomp.Codec:
        kind = nvcomp.BitstreamKind.RAW if self.batch else nvcomp.BitstreamKind.NVCOMP_NATIVE
        return nvcomp.Codec(algorithm=self.algorithm, data_type=self.value_type, uncomp_chunk_size=self.chunk, bitstream_kind=kind,
                            device_id=device.ordinal, cuda_stream=int(device.stream), **self.options)


def codecs(value_bytes: int) -> Iterator[Codec]:
    """ANS as floats and as bytes, Bitcomp as integers; then what makes ANS faster or smaller on floats."""
    floats, integers = ("<f2", "<u2") if value_bytes == 2 else ("|f1", "|u1")
    for algorithm, value_type in [("ANS", floats), ("ANS", "|u1"), ("Bitcomp", integers)]:
        for chunk in CHUNKS:
            for batch in (False, True):
                yield Codec(algorithm, value_type, chunk, batch)
    tuned = [
        ({"histogram_reduction_log2": 3}, "histogram of 1/8"),
        ({"states_per_lane": 1}, "1 state a lane"),
        ({"execution_policy": nvcomp.ExecutionPolicy.LATENCY}, "latency policy"),
    ]
    for options, note in tuned:
        for chunk in CHUNKS:
            yield Codec("ANS", floats, chunk, False, options, note)


class Stream:
    """One buffer in, one buffer out."""

    def __init__(self, codec: Codec, opened: nvcomp.Codec, raw: Buffer, back: Buffer):
        self.opened = opened
        self.source = nvcomp.as_array(raw.view(codec.array_type))
        self.frame = Buffer(opened.get_max_comp_buffer_size(self.source)).view("|u1")
        self.target = back.view("|u1")
        self.encode_config = opened.compression_config(raw.size)
        self.decode_config = opened.decompression_config(self.encode_config)
        # What goes to a buffer of ours has no size of its own, so what is decoded is an array that nvCOMP made.
        self.encoded = opened.encode(self.source, compression_config=self.encode_config)

    def encode(self) -> None:
        self.opened.encode(self.source, out=self.frame, compression_config=self.encode_config)

    def decode(self) -> None:
        self.opened.decode(self.encoded, out=self.target, decompression_config=self.decode_config)

    def frame_bytes(self) -> int:
        return self.encoded.buffer_size


class Batch(Stream):
    """One chunk an array."""

    def __init__(self, codec: Codec, opened: nvcomp.Codec, raw: Buffer, back: Buffer):
        self.opened = opened
        offsets = range(0, raw.size, codec.chunk)
        sizes = [min(codec.chunk, raw.size - at) for at in offsets]
        worst = opened.get_max_comp_buffer_size(nvcomp.as_array(raw.view(codec.array_type, 0, sizes[0])))
        slot = (worst + 255) // 256 * 256
        slots = Buffer(slot * len(offsets))
        self.source = nvcomp.as_arrays(raw.view(codec.array_type), list(offsets), sizes)
        self.frame = nvcomp.as_arrays(slots.view("|u1"), [slot * at for at in range(len(offsets))], [slot] * len(offsets))
        self.target = nvcomp.as_arrays(back.view("|u1"), list(offsets), sizes)
        self.encode_config = opened.compression_config(sizes)
        self.decode_config = opened.decompression_config(self.encode_config)
        self.encoded = opened.encode(self.source, out=self.frame, compression_config=self.encode_config)

    def frame_bytes(self) -> int:
        sizes = self.encoded.buffer_sizes
        return sum(sizes) + SIZE_BYTES * len(sizes)


def measure(tensors: Tensors, sizes: list[int], ordinal: int, progress: Callable[[str], None]) -> Iterator[Row]:
    device = Device(ordinal)
    for size in sizes:
        yield from measure_size(device, tensors, size, progress)


def measure_size(device: Device, tensors: Tensors, size: int, progress: Callable[[str], None]) -> Iterator[Row]:
    host = tensors.tiled(size)
    raw, back = Buffer(size), Buffer(size)
    raw.upload(host)
    head = {"device": f"GPU {device.ordinal}", "data": tensors.name, "dtype": tensors.dtype, "raw_bytes": size}
    copied, spread = device.time(lambda: device.copy(back, raw))
    head["copy_seconds"] = copied
    settings = f"{device.name}, CUDA {device.cuda // 1000}.{device.cuda % 1000 // 10}"
    verified = bool((back.download() == host).all())
    yield Row(**head, codec="copy", settings=settings, ratio=1.0, encode_seconds=copied, decode_seconds=copied, verified=verified,
              spread=(spread, spread))
    for codec in codecs(tensors.value_bytes):
        name = {"codec": f"nvCOMP {nvcomp.__version__} {codec.algorithm}", "settings": codec.settings}
        progress(f"{tensors.name}, {size >> 20} MiB: {name['codec']}, {name['settings']}")
        try:
            yield Row(**head, **name, **measure_codec(device, codec, raw, back, host))
        except (CudaError, AttributeError, RuntimeError, ValueError, TypeError) as error:  # in its own row, so that the others are measured
            yield Row(**head, **name, error=f"{type(error).__name__}: {error}")


def measure_codec(device: Device, codec: Codec, raw: Buffer, back: Buffer, host: np.ndarray) -> dict:
    run = (Batch if codec.batch else Stream)(codec, codec.open(device), raw, back)
    encode_seconds, encode_spread = device.time(run.encode)
    decode_seconds, decode_spread = device.time(run.decode)
    back.fill(0xA5)
    run.decode()
    return {
        "ratio": raw.size / run.frame_bytes(),
        "encode_seconds": encode_seconds,
        "decode_seconds": decode_seconds,
        "spread": (encode_spread, decode_spread),
        "verified": bool((back.download() == host).all()),
    }
