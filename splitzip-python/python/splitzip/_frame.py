"""Frames, and decoded tensors of no framework."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _splitzip
from ._dtypes import FRAMEWORK_NAMES, SIZES
from ._frameworks import Like, cuda_of, host_memory, numpy_dtype, stream_handle, view_of
from .errors import ArgumentError, UnsupportedError


def _versioned(max_version: tuple[int, int] | None) -> bool:
    return max_version is not None and tuple(max_version) >= (1, 0)


def _check_export(device: tuple[int, int], dl_device: tuple[int, int] | None, copy: bool | None) -> None:
    if copy:
        raise BufferError("SplitZip exports its memory and does not copy it; copy what you get")
    if dl_device is not None and tuple(int(part) for part in dl_device) != device:
        raise BufferError(f"the memory is on device {device} (DLPack type and number) and is not copied to {dl_device}")


class Frame:
    """One or more tensors, compressed.

    A frame lies in memory of the host or of a CUDA device. It is what :func:`splitzip.compress` returns; for bytes that came from
    elsewhere, ``Frame(data)`` checks them and holds on to them without a copy.

    Parameters
    ----------
    data
        A buffer, array or tensor that starts with a frame. More bytes may follow.
    stream
        For device memory: the stream on which it was written (see :func:`splitzip.compress`).

    Raises
    ------
    FrameError
        When it is no frame, ends too early, or is damaged as far as that shows without decoding.
    """

    __slots__ = ("_cuda", "_like", "_memory", "_nbytes", "_spec", "_stream", "_view", "__weakref__")

    def __init__(self, data: Any, *, stream: Any = None) -> None:
        cuda = cuda_of(data)
        handle = 0 if cuda is None else stream_handle(stream, cuda)
        view = view_of(data, "raw", handle)
        nbytes: int | None = None
        if view.cuda is None:
            spec, nbytes = _splitzip.Spec.parse(view)
        else:
            if cuda is None:
                handle = stream_handle(stream, view.cuda)
            spec = _splitzip.device_spec(view, handle)
        self._init(spec, data, view, nbytes, handle, None)

    def _init(
        self,
        spec: _splitzip.Spec,
        memory: Any,
        view: _splitzip.View,
        nbytes: int | None,
        stream: int,
        like: Sequence[Like] | None,
    ) -> None:
        self._spec = spec
        self._memory = memory
        self._view = view
        self._cuda = view.cuda
        self._nbytes = nbytes
        self._stream = stream
        self._like = like

    @classmethod
    def _made(
        cls,
        spec: _splitzip.Spec,
        memory: Any,
        view: _splitzip.View,
        nbytes: int | None,
        stream: int = 0,
        like: Sequence[Like] | None = None,
    ) -> Frame:
        frame = cls.__new__(cls)
        frame._init(spec, memory, view, nbytes, stream, like)
        return frame

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:0"``."""
        return "cpu" if self._cuda is None else f"cuda:{self._cuda}"

    @property
    def nbytes(self) -> int:
        """Bytes of the frame. On a device this waits for the stream that compresses it, the first time, and looks whether the frame is whole."""
        if self._nbytes is None:
            self._nbytes = _splitzip.device_length(self._spec, self._view, self._stream)
        return self._nbytes

    @property
    def raw_nbytes(self) -> int:
        """Bytes of the tensors in it."""
        return self._spec.raw_bytes

    @property
    def ratio(self) -> float:
        """Raw bytes for each byte of the frame. Waits as :attr:`nbytes` does."""
        return self.raw_nbytes / self.nbytes

    @property
    def max_nbytes(self) -> int:
        """The most bytes that a frame of these tensors can have."""
        return self._spec.max_frame_bytes

    @property
    def names(self) -> list[str]:
        """The names of the tensors, in order."""
        return self._spec.names

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors, in order."""
        return [tensor[5] for tensor in self._spec.tensors]

    @property
    def dtypes(self) -> list[str]:
        """The dtypes of the tensors, in order: ``"bf16"``, ``"fp16"``, ``"e4m3"``, ``"e5m2"``, ``"bytes"``."""
        return [tensor[2] for tensor in self._spec.tensors]

    @property
    def layout_id(self) -> int:
        """A number that both sides of a transfer may compare; 0 for none."""
        return self._spec.layout_id

    @property
    def data(self) -> memoryview:
        """The bytes of the frame, read-only, without a copy. Frames of a device have none: see :meth:`cpu`."""
        if self._cuda is not None:
            raise UnsupportedError(f"the frame is on {self.device}, where Python cannot read; use frame.cpu().data, or frame.memory")
        return host_memory(self._view, self._memory)[: self.nbytes].toreadonly()

    @property
    def memory(self) -> Any:
        """The memory that the frame lies in, at its start: what was given as ``out=``, or what was allocated for it."""
        return self._memory

    def cpu(self) -> Frame:
        """The frame in memory of the host: itself, or a copy. Waits for the stream that compresses it."""
        if self._cuda is None:
            return self
        memory = _splitzip.device_read(self._view, 0, self.nbytes, self._stream)
        view = view_of(memory, "raw")
        spec, nbytes = _splitzip.Spec.parse(view)
        return Frame._made(spec, memory, view, nbytes, like=self._like)

    def inspect(self) -> dict[str, Any]:
        """What :func:`splitzip.inspect` says."""
        return _splitzip.inspect(self.cpu()._view)

    def __len__(self) -> int:
        return self.nbytes

    def __bytes__(self) -> bytes:
        return bytes(self.cpu().data)

    def __buffer__(self, flags: int) -> memoryview:
        # Python 3.12 and newer ask for it.
        return self.data

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if self._cuda is None else (2, self._cuda)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        _check_export(self.__dlpack_device__(), dl_device, copy)
        # Asking for the length has waited for the device, so no stream has to.
        return self._view.export("bytes", (self.nbytes,), self._cuda is None, _versioned(max_version))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Frame, (bytes(self),))

    def __repr__(self) -> str:
        tensors = len(self._spec)
        nbytes = "?" if self._nbytes is None else self._nbytes
        return f"<Frame of {tensors} tensor{'s' if tensors != 1 else ''}, {self.raw_nbytes} to {nbytes} bytes, {self.device}>"


class Tensor:
    """A decoded tensor in memory of the host that belongs to no framework.

    Anything that takes DLPack takes it (``torch.from_dlpack``, ``numpy.from_dlpack`` for fp16 and bytes); :meth:`numpy` and :meth:`torch` make
    arrays and tensors that share its memory.
    """

    __slots__ = ("_view", "data", "dtype", "shape")

    def __init__(self, data: Any, dtype: str, shape: Sequence[int]) -> None:
        memory = memoryview(data).cast("B")
        expected = math.prod(shape) * SIZES[dtype]
        if memory.nbytes != expected:
            raise ArgumentError(f"{memory.nbytes} bytes are no {dtype} tensor of shape {tuple(shape)}, which has {expected}")
        self._view = view_of(data, "raw")
        #: The bytes of the elements, in the order of their indices.
        self.data = memory
        #: The dtype, as frames name it.
        self.dtype = dtype
        #: The shape.
        self.shape = tuple(shape)

    @classmethod
    def empty(cls, dtype: str, shape: Sequence[int]) -> Tensor:
        """A tensor of zeros."""
        return cls(bytearray(math.prod(shape) * SIZES[dtype]), dtype, shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.data.nbytes

    def numpy(self) -> Any:
        """An array that shares the memory: of a dtype of ml_dtypes for bf16 and fp8, or of words when ml_dtypes is not installed."""
        import numpy

        return numpy.frombuffer(self.data, numpy_dtype(self.dtype)).reshape(self.shape)

    def torch(self) -> Any:
        """A tensor of PyTorch that shares the memory."""
        import torch

        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=getattr(torch, FRAMEWORK_NAMES[self.dtype]))
        return torch.from_dlpack(self)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __buffer__(self, flags: int) -> memoryview:
        return self.data

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        _check_export((1, 0), dl_device, copy)
        return self._view.export(self.dtype, self.shape, False, _versioned(max_version))

    def __repr__(self) -> str:
        return f"<Tensor {self.dtype} {list(self.shape)}>"
