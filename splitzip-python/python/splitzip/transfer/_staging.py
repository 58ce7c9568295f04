"""Memory that frames are sent from and received into."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from typing import Any

from .. import _splitzip
from .._codec import Codec, codecs
from .._frameworks import device_memory
from ..errors import CorruptError, UnsupportedError
from .engine import Memory

# Where the words of the variable parts are in the dynamic part, and the status behind them.
_LENGTH = 16


class Staging:
    """Registered memory for one frame, with device memory beside it where the engine cannot register that.

    Parameters
    ----------
    nbytes
        The largest frame.
    cuda
        The device that frames are encoded or decoded on; ``None`` for the host.
    registers_device
        Whether the engine takes device memory.
    """

    def __init__(self, nbytes: int, cuda: int | None, registers_device: bool) -> None:
        self.cuda = cuda
        #: Memory of the host that the engine moves; ``None`` where it moves that of the device.
        self.host: memoryview | None = None
        #: The same as a tensor, if it is pinned for a device.
        self.pinned: Any = None
        #: Memory of the device, which it works on.
        self.scratch: Any = None
        if cuda is None:
            self.host = memoryview(_host_memory(nbytes))
        else:
            torch = _torch(cuda)
            self.scratch = device_memory(cuda, nbytes)
            if not registers_device:
                self.pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
                self.host = memoryview(self.pinned.numpy())
        view = _splitzip.View(self.scratch if self.host is None else self.host, "raw", 0 if self.host is None else None, True)
        self.memory = Memory(view.address, nbytes, view.cuda)

    def encode(self, codec: Codec, tensors: list[Any], stream: Any) -> Iterator[tuple[int, int]]:
        """Encodes into this memory. Yields the parts of the frame, first to last byte, as they become ready to be sent."""
        if self.cuda is None:
            yield 0, codec.encode(tensors, out=self.host).nbytes
            return
        torch = _torch(self.cuda)
        frame = codec.encode(tensors, out=self.scratch, stream=stream)
        if self.host is None:
            # Asking for the length waits for the encoder.
            yield 0, frame.nbytes
            return
        dense = codec.dense_nbytes
        with torch.cuda.stream(stream):
            # Where the dense part ends is known, so its copy follows the encoder without anybody asking; its end says how long the rest is.
            self.pinned[:dense].copy_(self.scratch[:dense], non_blocking=True)
        stream.synchronize()
        nbytes = _length(codec._spec, self.host)
        yield 0, dense
        if nbytes > dense:
            with torch.cuda.stream(stream):
                self.pinned[dense:nbytes].copy_(self.scratch[dense:nbytes], non_blocking=True)
            stream.synchronize()
            yield dense, nbytes

    def decode(self, spec: _splitzip.Spec, nbytes: int, outputs: list[Any], threads: int | None, stream: Any) -> None:
        """Decodes a frame that came, into tensors. Raises :class:`FrameError` unless it is one of this form and of this length, before anything is written."""
        if self.host is not None:
            view = _splitzip.View(self.host[:nbytes], "raw")
            _check_form(spec, nbytes, *_splitzip.Spec.parse(view))
        if self.cuda is None:
            views = [_splitzip.View(output, tensor[2], None, True) for output, tensor in zip(outputs, spec.tensors)]
            _splitzip.decode(view, views, threads)
            return
        if self.pinned is not None:
            with _torch(self.cuda).cuda.stream(stream):
                self.scratch[:nbytes].copy_(self.pinned[:nbytes], non_blocking=True)
        codec = codecs.get(spec, [None] * len(spec), self.cuda, False)
        # It waits, and compares the frame with the form itself.
        codec.decode(self.scratch[:nbytes], out=outputs, check=True, stream=stream)

    def wipe(self, spec: _splitzip.Spec) -> None:
        """Makes what is here no frame, so that it cannot pass for the next one if that never arrives."""
        start = words_at(spec)
        stop = start + _LENGTH
        if self.host is not None:
            self.host[:8] = bytes(8)
            self.host[start:stop] = bytes(_LENGTH)
        else:
            self.scratch[:8].zero_()
            self.scratch[start:stop].zero_()
            # The slot is given away right after this, to something that knows no streams.
            _torch(self.cuda).cuda.current_stream(self.cuda).synchronize()


def _check_form(spec: _splitzip.Spec, nbytes: int, found: _splitzip.Spec, found_nbytes: int) -> None:
    if found != spec:
        raise CorruptError("the frame that came is of another form than was announced; it was not decoded")
    if found_nbytes != nbytes:
        raise CorruptError(f"the frame that came has {found_nbytes} bytes, and {nbytes} were announced; it was not decoded")


def words_at(spec: _splitzip.Spec) -> int:
    """Where the dynamic part starts, and in it the words of the variable parts: behind the header, the table and the strings, which are padded to 8."""
    strings = sum(8 * len(tensor[5]) + len(tensor[0].encode()) for tensor in spec.tensors)
    return 64 + 64 * len(spec) + (strings + 7) // 8 * 8


def _length(spec: _splitzip.Spec, memory: memoryview) -> int:
    start = words_at(spec)
    head = memory[start : start + _LENGTH]
    words, status = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:12], "little")
    nbytes = spec.dense_bytes + 4 * words
    if status != 0 or nbytes > spec.max_frame_bytes:
        raise CorruptError(f"the encoder failed with status {status} and {words} words; send it again, or report it if it happens twice")
    return nbytes


def _host_memory(nbytes: int) -> mmap.mmap:
    # Pages that are there already: neither the codec nor the engine meets new ones on the way.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
    return mmap.mmap(-1, max(nbytes, 1), flags=flags)


def _torch(cuda: int | None) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise UnsupportedError(f"transfers of tensors on cuda:{cuda} need PyTorch for streams and pinned memory; import torch before")
    return torch


def new_stream(cuda: int | None) -> Any:
    """A stream for encoding or decoding beside what else the device does; ``None`` on the host."""
    return None if cuda is None else _torch(cuda).cuda.Stream(device=cuda)


def now_on(cuda: int | None) -> Any:
    """An event on the caller's current stream: what was queued before it."""
    if cuda is None:
        return None
    torch = _torch(cuda)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(cuda))
    return event
