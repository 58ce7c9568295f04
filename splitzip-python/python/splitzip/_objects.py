"""Objects of caches: bytes in one piece that hold tensors, coded into one frame each. What the integrations of serving engines share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy

from . import _splitzip
from ._api import compress_batch, decompress_batch
from ._dtypes import SIZES
from ._frame import Frame
from ._options import Checksums, Scheme
from .errors import ArgumentError, BufferSizeError, FrameError

#: The dtypes of PyTorch that are coded, by the names that ``str(dtype)`` gives them; all others are bytes.
TORCH_DTYPES = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float8_e4m3fn": "e4m3",
    "torch.float8_e5m2": "e5m2",
}

#: A window of ``w4`` takes a codebook, which nobody has before there are elements.
_SCHEMES = ("stored", "w3", "w2x3", "w2x2x3")
#: Elements of a group of chunks, which share the bases of their channels.
_GROUP = 16 * 1024
#: Up to so many channels a group of chunks has enough tokens for a base of each.
_MOST_CHANNELS = 256
#: The latent and the rotary part of a row of MLA.
_MLA = (512, 64)
#: Ways to cut a region into tensors that lie between each other.
_BETWEEN = ("rows", "fused", "parts")


@dataclass(frozen=True)
class Region:
    """A tensor in the bytes of an object; the next one follows behind it.

    Parameters
    ----------
    dtype
        ``"bf16"``, ``"fp16"``, ``"e4m3"``, ``"e5m2"`` or ``"bytes"``.
    shape
        Its shape, the innermost dimension last.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return math.prod(self.shape) * SIZES[self.dtype]


# A tensor of a frame: its name, its region, how that is cut, which part it is, and its shape.
_Tensor = tuple[str, Region, str, str, tuple[int, ...]]


class ObjectCoder:
    """Codes objects into frames, bit by bit the same again.

    Keys and values are tensors of their own in the frame, head by head where heads are known, and keys then have a base for each channel: the exponents of keys
    depend on the channel, those of values hardly do. How a frame is arranged is read from the frame, so that options may change while files are kept.

    Parameters
    ----------
    scheme
        ``"w2x3"``, ``"w3"``, ``"w2x2x3"`` or ``"stored"``.
    bases
        ``"auto"``: of channels for keys where heads are known, of chunks otherwise. ``"chunk"``: for all.
    head_dim
        Elements of a head. Without it a row of up to 256 elements is taken for one head.
    parts
        Elements of the parts of a row where keys and values have none of their own (MLA). Without it rows of 576 have 512 and 64.
    fused
        Whether keys and values of a head share a row of ``2 * head_dim``, in objects of one region without a shape.
    checksums
        As for :func:`splitzip.compress`, but not ``"none"``: a damaged object must be found.
    threads
        How many work on one object; ``None`` is one a core.
    """

    def __init__(
        self,
        *,
        scheme: Scheme = "w2x3",
        bases: str = "auto",
        head_dim: int | None = None,
        parts: Sequence[int] | None = None,
        fused: bool = False,
        checksums: Checksums = "tensor",
        threads: int | None = None,
    ) -> None:
        _check_choice("scheme", scheme, _SCHEMES)
        _check_choice("bases", bases, ("auto", "chunk"))
        _check_choice("checksums", checksums, [name for name in get_args(Checksums) if name != "none"])
        for name, value in (("head_dim", head_dim), ("threads", threads)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ArgumentError(f"{name} must be a number of at least 1, and is {value!r}")
        if parts is not None and (not parts or any(not isinstance(part, int) or part < 1 for part in parts)):
            raise ArgumentError(f"parts must be numbers of at least 1, and are {parts!r}")
        if fused and head_dim is None:
            raise ArgumentError("a fused cache is cut at the heads; say head_dim")
        self._scheme: Scheme = scheme
        self._bases = bases
        self._head_dim = head_dim
        self._parts = None if parts is None else tuple(parts)
        self._fused = fused
        self._checksums: Checksums = checksums
        self._threads = threads

    def bound(self, regions: Sequence[Region]) -> int:
        """The most bytes that the frame of an object can have, whatever its elements are."""
        tensors = _arrange(regions, [self._arrangement(region) for region in regions])
        described = [(tensor[0], 0, tensor[1].dtype, *self._coding(tensor), tensor[4]) for tensor in tensors]
        return max(_splitzip.Spec(described, self._checksums).max_frame_bytes, plain_bytes(regions))

    def encode(self, regions: Sequence[Region], src: Any, key: bytes = b"", out: Any = None) -> Frame:
        """Codes an object.

        Parameters
        ----------
        regions
            What its bytes are.
        src
            Its bytes.
        key
            What it is named by: decoding wants the same.
        out
            Memory of :meth:`bound` bytes for the frame; without it memory is allocated.
        """
        arrangements = [self._arrangement(region) for region in regions]
        frame = self._encode(regions, arrangements, self._coding, self._checksums, src, key, out)
        if frame.nbytes <= plain_bytes(regions):
            return frame
        # What gains nothing is stored, so that memory for any other options is large enough to load it.
        return self._encode(regions, _plain(regions), lambda _: ("stored", "chunk"), "tensor", src, key, out)

    def _encode(
        self,
        regions: Sequence[Region],
        arrangements: Sequence[tuple[str, tuple[int, ...]]],
        coding: Callable[[_Tensor], tuple[str, str]],
        checksums: Checksums,
        src: Any,
        key: bytes,
        out: Any,
    ) -> Frame:
        tensors = _arrange(regions, arrangements)
        codings = [coding(tensor) for tensor in tensors]
        return compress_batch(
            _views(regions, arrangements, src, "the object"),
            names=[tensor[0] for tensor in tensors],
            dtype=[tensor[1].dtype for tensor in tensors],
            scheme=[scheme for scheme, _ in codings],
            bases=[bases for _, bases in codings],
            checksums=checksums,
            layout_id=layout_id(regions, key),
            out=out,
            threads=self._threads,
        )

    def decode(self, regions: Sequence[Region], frame: Any, dst: Any, key: bytes = b"") -> None:
        """Decodes the frame of an object.

        Parameters
        ----------
        regions, key
            As they were encoded.
        frame
            Memory that starts with the frame.
        dst
            Where its bytes go. After an error they are undefined.

        Raises
        ------
        FrameError
            For what is no frame, a damaged one, or that of another object.
        """
        opened = Frame(frame)
        expected = layout_id(regions, key)
        if opened.layout_id != expected:
            raise FrameError(
                f"the frame is that of another object: its layout id is {opened.layout_id:#x}, and {expected:#x} was expected; do not use it for this key"
            )
        arrangements = _arrangements_of(regions, opened)
        tensors = _arrange(regions, arrangements)
        found = list(zip(opened.names, opened.dtypes, opened.shapes))
        if found != [(name, region.dtype, shape) for name, region, _, _, shape in tensors]:
            raise FrameError("the frame has the layout id of this object and holds other tensors; do not use it")
        views = _views(regions, arrangements, dst, "the memory for the object")
        # Tensors that lie between each other cannot be written at the same time, so they come in one piece first.
        outputs = [numpy.empty(view.shape, view.dtype) if kind in _BETWEEN else view for view, (_, _, kind, _, _) in zip(views, tensors)]
        decompress_batch(opened, out=outputs, threads=self._threads)
        for view, output in zip(views, outputs):
            if output is not view:
                view[...] = output

    def _arrangement(self, region: Region) -> tuple[str, tuple[int, ...]]:
        """How a region is cut into tensors: the kind, and its numbers."""
        shape = region.shape
        if region.dtype == "bytes" or not shape or 0 in shape:
            return ("whole", ())
        if self._fused and len(shape) == 1 and self._head_dim and shape[0] % (2 * self._head_dim) == 0:
            return ("fused", (self._head_dim,))
        if len(shape) in (3, 4) and shape[0] == 2:
            head_dim = self._head_dim or (shape[-1] if shape[-1] <= _MOST_CHANNELS else None)
            if head_dim is not None and shape[-1] % head_dim == 0:
                return ("heads", (head_dim,))
            return ("pair", ())
        if len(shape) == 3 and shape[1] == 2:
            return ("rows", ())
        parts = self._parts or (_MLA if shape[-1] == sum(_MLA) else None)
        if len(shape) > 1 and parts is not None and sum(parts) == shape[-1]:
            return ("parts", parts)
        return ("whole", ())

    def _coding(self, tensor: _Tensor) -> tuple[str, str]:
        """Scheme and bases of a tensor."""
        _, region, kind, part, shape = tensor
        if region.dtype == "bytes":
            return ("stored", "chunk")
        channels = kind in ("heads", "fused") and part == "k" and self._bases == "auto" and self._scheme != "stored" and shape[-1] % 8 == 0
        # Of no use where most of a group of chunks is of other heads.
        channels = channels and (kind == "fused" or 2 * shape[-2] * shape[-1] >= _GROUP)
        return (self._scheme, "channel" if channels else "chunk")


def plain_bytes(regions: Sequence[Region]) -> int:
    """The bytes of the frame of an object that is stored: no frame of an object is longer."""
    described = [(name, 0, region.dtype, "stored", "chunk", shape) for name, region, _, _, shape in _arrange(regions, _plain(regions))]
    return _splitzip.Spec(described, "tensor").max_frame_bytes


def _plain(regions: Sequence[Region]) -> list[tuple[str, tuple[int, ...]]]:
    return [("whole", ()) for _ in regions]


def _arrange(regions: Sequence[Region], arrangements: Sequence[tuple[str, tuple[int, ...]]]) -> list[_Tensor]:
    """The tensors of the frame."""
    tensors = []
    for number, (region, (kind, numbers)) in enumerate(zip(regions, arrangements)):
        tensors += [(f"{number}.{kind}.{part}", region, kind, part, shape) for part, shape in _shapes(region.shape, kind, numbers)]
    return tensors


def layout_id(regions: Sequence[Region], key: bytes = b"") -> int:
    """A number for what an object is and what it is named by, which its frame carries."""
    described = json.dumps([[region.dtype, *region.shape] for region in regions]).encode()
    digest = hashlib.sha256(b"splitzip object\0%d\0%s%s" % (len(described), described, key)).digest()
    # 0 is that of frames without any.
    return int.from_bytes(digest[:8], "little") or 1


def _check_choice(what: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ArgumentError(f"there is no {what} {value!r} for objects; it must be one of {', '.join(choices)}")


def _shapes(shape: tuple[int, ...], kind: str, numbers: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """The parts of a region, and their shapes in the frame."""
    if kind == "pair":
        return [("k", shape[1:]), ("v", shape[1:])]
    if kind == "heads":
        *outer, tokens, row = shape[1:]
        by_head = (*outer, row // numbers[0], tokens, numbers[0])
        return [("k", by_head), ("v", by_head)]
    if kind == "rows":
        return [("k", (shape[0], shape[2])), ("v", (shape[0], shape[2]))]
    if kind == "fused":
        rows = (shape[0] // (2 * numbers[0]), numbers[0])
        return [("k", rows), ("v", rows)]
    if kind == "parts":
        return [(str(part), (*shape[:-1], size)) for part, size in enumerate(numbers)]
    return [("all", shape)]


def _cut(array: Any, kind: str, numbers: tuple[int, ...]) -> list[Any]:
    """The same of an array: views of its elements."""
    if kind == "pair":
        return [array[0], array[1]]
    if kind == "heads":
        # Heads before tokens, so that a chunk is of one head, and a group of chunks has many tokens of the same channels.
        by_head = array.reshape(*array.shape[:-1], array.shape[-1] // numbers[0], numbers[0]).swapaxes(-2, -3)
        return [by_head[0], by_head[1]]
    if kind == "rows":
        return [array[:, 0], array[:, 1]]
    if kind == "fused":
        rows = array.reshape(-1, 2, numbers[0])
        return [rows[:, 0], rows[:, 1]]
    if kind == "parts":
        ends = [sum(numbers[: part + 1]) for part in range(len(numbers))]
        return [array[..., end - size : end] for end, size in zip(ends, numbers)]
    return [array]


def _views(regions: Sequence[Region], arrangements: Sequence[tuple[str, tuple[int, ...]]], memory: Any, what: str) -> list[Any]:
    octets = numpy.frombuffer(memory, numpy.uint8)
    expected = sum(region.nbytes for region in regions)
    if octets.nbytes != expected:
        raise BufferSizeError(f"{what} has {octets.nbytes} bytes, but needs {expected}, as its regions say")
    views, at = [], 0
    for region, (kind, numbers) in zip(regions, arrangements):
        words = octets[at : at + region.nbytes].view(f"u{SIZES[region.dtype]}")
        views += _cut(words.reshape(region.shape), kind, numbers)
        at += region.nbytes
    return views


def _arrangements_of(regions: Sequence[Region], frame: Frame) -> list[tuple[str, tuple[int, ...]]]:
    """How the regions of a frame were cut, from its names and shapes. What does not fit is found when they are compared."""
    kinds: dict[str, tuple[str, list[tuple[int, ...]]]] = {}
    for name, shape in zip(frame.names, frame.shapes):
        of, kind = (*name.split("."), "")[:2]
        kinds.setdefault(of, (kind, []))[1].append(shape)
    arrangements = []
    for number, region in enumerate(regions):
        kind, shapes = kinds.get(str(number), ("whole", []))
        rows = tuple(shape[-1] if shape else 0 for shape in shapes)
        numbers = rows if kind == "parts" else rows[:1] if kind in ("heads", "fused") else ()
        if not _fits(region, kind, numbers):
            raise FrameError("the frame has the layout id of this object and is cut in another way; do not use it")
        arrangements.append((kind, numbers))
    return arrangements


def _fits(region: Region, kind: str, numbers: tuple[int, ...]) -> bool:
    shape = region.shape
    if kind == "whole":
        return True
    if 0 in numbers or 0 in shape or not shape:
        return False
    return {
        "pair": len(shape) >= 2 and shape[0] == 2,
        "heads": len(shape) >= 3 and shape[0] == 2 and len(numbers) == 1 and shape[-1] % numbers[0] == 0,
        "rows": len(shape) == 3 and shape[1] == 2,
        "fused": len(shape) == 1 and len(numbers) == 1 and shape[0] % (2 * numbers[0]) == 0,
        "parts": len(shape) >= 2 and sum(numbers) == shape[-1],
    }.get(kind, False)
