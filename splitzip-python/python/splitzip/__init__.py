"""Lossless compression of LLM KV caches.

A KV tensor is bf16, fp16 or fp8. Its sign and mantissa look random, its exponents use few values: SplitZip stores the first as they are and gives the
second short codes of fixed width. What comes back is the same, bit for bit.

>>> import numpy, splitzip
>>> kv = numpy.random.default_rng(0).normal(size=(2, 512, 64)).astype(numpy.float16)
>>> frame = splitzip.compress(kv)
>>> bool((splitzip.decompress(frame) == kv).all())
True

Arrays of NumPy, tensors of PyTorch on the CPU and on CUDA devices, whatever has ``__dlpack__`` or ``__cuda_array_interface__``, and buffers are taken. Importing this
needs none of them, no GPU and no driver.
"""

from . import errors
from ._api import (
    calibrate,
    codebooks_from_json,
    codebooks_to_json,
    compress,
    compress_batch,
    cuda_devices,
    decompress,
    decompress_batch,
    decompress_range,
    inspect,
    max_compressed_size,
)
from ._codec import Codec
from ._frame import Frame, Tensor
from ._paged import PagedCodec, compress_paged, decompress_paged
from ._splitzip import VERSION as __version__
from ._splitzip import Codebook, KvLayout, Paged, RowMap
from .errors import (
    ArgumentError,
    BufferSizeError,
    ChecksumError,
    CodebookError,
    CorruptError,
    CudaError,
    CudaUnavailableError,
    DtypeError,
    Error,
    FrameError,
    LimitError,
    NotAFrameError,
    OutOfMemoryError,
    PagedError,
    TruncatedError,
    UnsupportedError,
    VersionError,
)

__all__ = [
    "ArgumentError",
    "BufferSizeError",
    "ChecksumError",
    "Codebook",
    "CodebookError",
    "Codec",
    "CorruptError",
    "CudaError",
    "CudaUnavailableError",
    "DtypeError",
    "Error",
    "Frame",
    "FrameError",
    "KvLayout",
    "LimitError",
    "NotAFrameError",
    "OutOfMemoryError",
    "Paged",
    "PagedCodec",
    "PagedError",
    "RowMap",
    "Tensor",
    "TruncatedError",
    "UnsupportedError",
    "VersionError",
    "__version__",
    "calibrate",
    "codebooks_from_json",
    "codebooks_to_json",
    "compress",
    "compress_batch",
    "compress_paged",
    "cuda_devices",
    "decompress",
    "decompress_batch",
    "decompress_paged",
    "decompress_range",
    "errors",
    "inspect",
    "max_compressed_size",
]
