"""Arrays and tensors of others: made for outputs, and asked for their streams. Nothing is imported that the program has not imported."""

from __future__ import annotations

import ctypes
import math
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from . import _splitzip
from ._dtypes import FRAMEWORK_NAMES, SIZES
from .errors import ArgumentError, OutOfMemoryError, UnsupportedError

# What made a tensor, and its dtype there.
Like = tuple[str, Any]

FRAMEWORKS = ("numpy", "torch", "splitzip")


def like_of(tensor: Any) -> Like:
    """What an input is, so that its output becomes the same."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return ("torch", tensor.dtype)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        return ("numpy", tensor.dtype)
    return ("splitzip", None)


def check_framework(framework: str | None) -> None:
    if framework is not None and framework not in FRAMEWORKS:
        raise ArgumentError(f"there is no framework {framework!r}; it must be one of {', '.join(FRAMEWORKS)}")


def view_of(tensor: Any, dtype: str | None = None, handle: int | None = None, write: bool = False) -> _splitzip.View:
    """Where the elements of a tensor lie. PyTorch exports tensors of the current device only, so that of the tensor is made current meanwhile."""
    torch = sys.modules.get("torch")
    guard: AbstractContextManager[Any] = nullcontext()
    if torch is not None and isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.get_device() != torch.cuda.current_device():
        guard = torch.cuda.device(tensor.get_device())
    with guard:
        return _splitzip.View(tensor, dtype, handle, write)


def allocating_on(handle: int | None, cuda: int) -> AbstractContextManager[Any]:
    """PyTorch gives memory again that work on one stream has freed, so it must know on which stream the memory will be used."""
    torch = sys.modules["torch"]
    if handle is None or handle == torch.cuda.current_stream(cuda).cuda_stream:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(handle, device=cuda))  # type: ignore[no-any-return]


def empty(like: Like, dtype: str, shape: tuple[int, ...], cuda: int | None, handle: int | None = None) -> Any:
    """An output: an array, a tensor, or a :class:`~splitzip.Tensor`."""
    try:
        return _empty(like, dtype, shape, cuda, handle)
    except (MemoryError, OverflowError, ValueError, RuntimeError) as error:
        # A frame of a few bytes may describe tensors of any size, and frameworks differ in what they say to that.
        nbytes = math.prod(shape) * SIZES[dtype]
        if nbytes < 1 << 30 and not isinstance(error, MemoryError):
            raise
        raise OutOfMemoryError(
            f"there is no memory for a tensor of {nbytes} bytes ({error}); decompress a part of it with decompress_range, or do not trust the frame"
        ) from error


def _empty(like: Like, dtype: str, shape: tuple[int, ...], cuda: int | None, handle: int | None) -> Any:
    framework, own = like
    if cuda is not None:
        if framework == "numpy" or sys.modules.get("torch") is None:
            raise UnsupportedError(
                f"outputs on cuda:{cuda} need an allocator: import torch before, or give out= (anything with __dlpack__ or __cuda_array_interface__)"
            )
        framework, own = "torch", own if framework == "torch" else None
    if framework == "numpy":
        import numpy

        array = numpy.empty(shape, numpy_dtype(dtype))
        return array if own is None or own == array.dtype else array.view(own)
    if framework == "torch":
        import torch

        device = "cpu" if cuda is None else f"cuda:{cuda}"
        with nullcontext() if cuda is None else allocating_on(handle, cuda):
            tensor = torch.empty(shape, dtype=getattr(torch, FRAMEWORK_NAMES[dtype]), device=device)
        return tensor if own is None or own == tensor.dtype else tensor.view(own)
    from ._frame import Tensor

    return Tensor.empty(dtype, shape)


def numpy_dtype(dtype: str) -> Any:
    """That of NumPy: of ml_dtypes where NumPy has none, and words where ml_dtypes is not there."""
    import numpy

    if dtype in ("fp16", "bytes"):
        return numpy.dtype(FRAMEWORK_NAMES[dtype])
    try:
        import ml_dtypes
    except ImportError:
        return numpy.dtype(f"uint{8 * SIZES[dtype]}")
    return numpy.dtype(getattr(ml_dtypes, FRAMEWORK_NAMES[dtype]))


def device_memory(cuda: int, nbytes: int, handle: int | None = None) -> Any:
    """Memory for a frame: PyTorch's where it is loaded, else of the driver."""
    torch = sys.modules.get("torch")
    if torch is not None:
        with allocating_on(handle, cuda):
            return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{cuda}")
    return _splitzip.DeviceMemory(cuda, nbytes)


def cuda_of(tensor: Any) -> int | None:
    """The number of the CUDA device that a tensor says it is on, without looking at its memory; ``None`` for the host."""
    if hasattr(tensor, "__array_interface__"):
        return None
    ask = getattr(tensor, "__dlpack_device__", None)
    if ask is not None:
        kind, number = ask()
        return int(number) if int(kind) in (2, 13) else None
    return None


def stream_handle(stream: Any, cuda: int) -> int:
    """The handle of the driver for a stream: of an integer, an object of a framework, or the current one of PyTorch."""
    if stream is None:
        torch = sys.modules.get("torch")
        # Where PyTorch has not begun with CUDA, its current stream is the default one.
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return int(torch.cuda.current_stream(cuda).cuda_stream)
    if isinstance(stream, int):
        if stream < 0:
            raise ArgumentError(f"{stream} is no stream; give a handle of the driver (0 is the default stream)")
        return stream
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    raise ArgumentError(
        f"{type(stream).__name__} is no stream; give a handle of the driver, or a stream of PyTorch, CuPy or cuda.core"
    )


def host_memory(view: _splitzip.View, owner: Any) -> memoryview:
    """Memory of the host as a memoryview of bytes that keeps its owner."""
    try:
        return memoryview(owner).cast("B")
    except (TypeError, ValueError, BufferError):
        array = (ctypes.c_ubyte * view.nbytes).from_address(view.address)
        array._owner = view  # type: ignore[attr-defined]
        return memoryview(array).cast("B")
