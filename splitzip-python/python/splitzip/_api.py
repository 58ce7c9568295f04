"""The functions of the package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import _splitzip
from ._codec import codecs, encode_host, make_outputs, need_host, views_of
from ._dtypes import dtype_name
from ._frame import Frame, Tensor
from ._frameworks import check_framework, empty, like_of, stream_handle, view_of
from ._options import Bases, Checksums, Framework, Scheme, Tensors, check_threads, codebooks_of, each, named
from ._splitzip import Codebook
from .errors import ArgumentError, LimitError, UnsupportedError


def compress(
    tensor: Any,
    *,
    scheme: Scheme = "w2x3",
    bases: Bases = "chunk",
    dtype: Any = None,
    codebook: Codebook | None = None,
    checksums: Checksums = "tensor",
    name: str = "",
    packed: bool = False,
    out: Any = None,
    stream: Any = None,
    threads: int | None = None,
) -> Frame:
    """Compresses a tensor without losing a bit.

    Parameters
    ----------
    tensor
        A NumPy array, a PyTorch tensor, anything with ``__dlpack__`` or ``__cuda_array_interface__``, or a buffer such as ``bytes``. On the host strides
        are followed; on a device the tensor must be contiguous.
    scheme
        ``"w4"`` decodes fastest, ``"w2x2x3"`` is smallest, ``"w2x3"`` is between them; ``"stored"`` copies. ``"auto"`` takes the smallest (on the host).
    bases
        ``"chunk"``, or ``"channel"`` for a last dimension that is a multiple of 8 and at most 1024; ``"auto"`` takes the smaller (on the host).
    dtype
        What the elements are, where the tensor cannot say it: integers that hold words of a float, bytes, 2-byte floats of ``__cuda_array_interface__``.
        ``"bytes"`` stores a tensor of any type.
    codebook
        For ``w4``: one that :func:`calibrate` has made. ``None`` takes one from a sample of the tensor.
    checksums
        Of the raw bits of the ``"tensor"``, of every ``"chunk"``, ``"both"`` or ``"none"``. Parts of a tensor are verified by those of chunks only.
    name
        A name for the tensor in the frame.
    packed
        Chunks of equal elements take no room: for files, where a device does not decode the frame.
    out
        Writable memory of :func:`max_compressed_size` bytes for the frame.
    stream
        For tensors of a device: a handle of the driver, or a stream of PyTorch or CuPy. ``None`` is the current stream of PyTorch where it is loaded, else the default
        stream.
    threads
        On the host: how many; ``None`` is one a core.

    Returns
    -------
    Frame
        On the device of the tensor. There the work is queued on the stream, and only asking for the length waits.

    Examples
    --------
    >>> import numpy, splitzip
    >>> kv = numpy.random.default_rng(0).normal(size=(2, 512, 64)).astype(numpy.float16)
    >>> frame = splitzip.compress(kv)
    >>> frame.nbytes < kv.nbytes
    True
    >>> bool((splitzip.decompress(frame) == kv).all())
    True
    """
    return compress_batch(
        [tensor],
        names=[name],
        scheme=scheme,
        bases=bases,
        dtype=dtype,
        codebook=codebook,
        checksums=checksums,
        packed=packed,
        out=out,
        stream=stream,
        threads=threads,
    )


def compress_batch(
    tensors: Tensors,
    *,
    names: Sequence[str] | None = None,
    ids: Sequence[int] | None = None,
    scheme: Any = "w2x3",
    bases: Any = "chunk",
    dtype: Any = None,
    codebook: Any = None,
    checksums: Checksums = "tensor",
    layout_id: int = 0,
    packed: bool = False,
    arrival: bool = False,
    out: Any = None,
    stream: Any = None,
    threads: int | None = None,
) -> Frame:
    """Compresses many tensors into one frame.

    Parameters
    ----------
    tensors
        A list of tensors of one device, or a dict of them by name.
    names, ids
        For a list: names, and numbers of your own, one for each tensor.
    scheme, bases, dtype, codebook
        As for :func:`compress`: one for all tensors, a list, or a dict by name (tensors that it does not have get the default). Tensors of bytes are
        stored.
    checksums, packed, out, stream, threads
        As for :func:`compress`.
    layout_id
        A number that both sides of a transfer may compare.
    arrival
        Groups of chunks lie in the order in which they were finished: faster on a device, and not the same bytes every time.

    Returns
    -------
    Frame
    """
    listed_names, listed = named(tensors, names)
    views, cuda, handle = views_of(listed, each("dtype", dtype, listed_names), stream)
    codebooks = codebooks_of(codebook, listed_names)
    numbers = [0] * len(listed) if ids is None else list(ids)
    if len(numbers) != len(listed):
        raise ArgumentError(f"{len(numbers)} ids for {len(listed)} tensors; give one for each, in their order")
    described = []
    rows = zip(
        listed_names, numbers, views, each("scheme", scheme, listed_names), each("bases", bases, listed_names), codebooks
    )
    for tensor_name, number, view, one, base, book in rows:
        chosen = _choose(view, "w2x3" if one is None else one, "chunk" if base is None else base, book)
        described.append((tensor_name, number, view.dtype, *chosen, view.shape))
    spec = _splitzip.Spec(described, checksums, arrival, layout_id)
    like = [like_of(tensor) for tensor in listed]
    if cuda is None:
        return encode_host(spec, codebooks, views, out, like, packed, threads)
    if packed:
        raise UnsupportedError("frames are packed on the host; compress without packed=True, and pack frame.cpu()")
    return codecs.get(spec, codebooks, cuda, True)._encode_views(views, out, handle, like)


def _choose(view: _splitzip.View, scheme: str, bases: str, codebook: Codebook | None) -> tuple[str, str]:
    if view.dtype == "bytes":
        return ("stored", "chunk")
    if "auto" not in (scheme, bases):
        return (scheme, bases)
    if view.cuda is not None:
        raise UnsupportedError("auto looks at the elements, which is done on the host only; name scheme and bases for tensors of a device")
    return _splitzip.choose(view, scheme, bases, codebook)


def decompress(
    frame: Any,
    *,
    out: Any = None,
    framework: Framework | None = None,
    check: bool = True,
    stream: Any = None,
    threads: int | None = None,
    max_bytes: int | None = None,
) -> Any:
    """Decompresses a frame of one tensor.

    Parameters
    ----------
    frame
        A :class:`Frame`, or memory of the host or a device that starts with one.
    out
        The output, of the dtype and size of the tensor: strides are followed on the host. Without it one is allocated, on a device by PyTorch.
    framework
        ``"numpy"``, ``"torch"`` or ``"splitzip"`` (a :class:`Tensor`). ``None`` is what was compressed, as far as the :class:`Frame` knows it, else a
        :class:`Tensor` (of PyTorch on a device).
    check
        On a device: wait for the result, and verify the frame and its checksums of tensors. Without it the call returns when the work is queued, and nothing says
        that a frame was damaged: use a :class:`Codec`, which has a ``check`` for later. The host always verifies the checksums that the frame has.
    stream
        As for :func:`compress`.
    threads
        On the host: how many; ``None`` is one a core.
    max_bytes
        For frames that are not trusted, when there is no ``out``: the most bytes that are allocated. A packed frame can describe 315 times as many as it has.

    Returns
    -------
    tensor
        ``out``, or what was allocated.

    Raises
    ------
    LimitError
        For a frame of more than ``max_bytes``, before anything is allocated.
    FrameError
        For what is no frame, or a damaged one. What is in the output then is undefined.
    """
    opened = _open(frame, stream)
    if len(opened._spec) != 1:
        raise ArgumentError(f"the frame has {len(opened._spec)} tensors; use decompress_batch")
    outputs = None if out is None else [out]
    return decompress_batch(
        opened, out=outputs, framework=framework, check=check, stream=stream, threads=threads, max_bytes=max_bytes
    )[0]


def decompress_batch(
    frame: Any,
    *,
    out: Tensors | None = None,
    framework: Framework | None = None,
    check: bool = True,
    stream: Any = None,
    threads: int | None = None,
    max_bytes: int | None = None,
) -> list[Any]:
    """Decompresses all tensors of a frame.

    Parameters
    ----------
    frame, framework, check, stream, threads, max_bytes
        As for :func:`decompress`.
    out
        One output for each tensor, in the order of the frame, or a dict by name.

    Returns
    -------
    list of tensors
        In the order of the frame; ``frame.names`` are their names.
    """
    check_threads(threads)
    opened = _open(frame, stream)
    spec, cuda = opened._spec, opened._cuda
    if out is None and max_bytes is not None and spec.raw_bytes > max_bytes:
        raise LimitError(
            f"the frame has {spec.raw_bytes} bytes decoded, and at most {max_bytes} are allowed; allow more if you trust where it comes from"
        )
    if cuda is not None:
        handle = stream_handle(stream, cuda)
        codec = codecs.get(spec, [None] * len(spec), cuda, False)
        outputs: list[Any] = codec._decode_view(opened._view, opened._like, out, check, framework, handle, False)
        return outputs
    if out is None:
        outputs = make_outputs(spec, opened._like, framework, None)
    else:
        outputs = _outputs(spec, out)
    dtypes = [tensor[2] for tensor in spec.tensors]
    views = [view_of(output, dtype, None, True) for output, dtype in zip(outputs, dtypes)]
    _splitzip.decode(opened._view, views, threads)
    return outputs


def _outputs(spec: _splitzip.Spec, out: Tensors) -> list[Any]:
    if isinstance(out, Mapping):
        missing = [name for name in spec.names if name not in out]
        if missing or len(set(spec.names)) != len(spec):
            raise ArgumentError(f"out has no {missing[0]!r}" if missing else "two tensors of the frame have the same name; give a list")
        return [out[name] for name in spec.names]
    listed = named(out, None)[1]
    if len(listed) != len(spec):
        raise ArgumentError(f"{len(listed)} outputs for the {len(spec)} tensors of the frame; give one for each, in order")
    return listed


def decompress_range(
    frame: Any,
    tensor: int | str,
    start: int,
    stop: int,
    *,
    out: Any = None,
    framework: Framework | None = None,
) -> Any:
    """Decompresses the elements ``start`` to ``stop`` of one tensor, and nothing else: only the chunks of 1024 elements that hold some of them.

    All elements of a tensor are verified by the checksums that the frame has. Of a part the default, checksums of tensors, says nothing: compress with ``checksums="chunk"`` or
    ``"both"`` to have parts verified. Without them damage may give a part other bits, and no error.

    Parameters
    ----------
    frame
        A :class:`Frame` or memory that starts with one, on the host.
    tensor
        Its number in the frame, or its name.
    start, stop
        Places in the order of indices, as if the tensor had one dimension.
    out, framework
        As for :func:`decompress`; the output has one dimension.

    Returns
    -------
    tensor
    """
    opened = _open(frame, None)
    if opened._cuda is not None:
        raise need_host("decompress_range")
    number = tensor_number(opened, tensor)
    dtype, shape = opened._spec.tensor(number)
    count = math.prod(shape)
    if not 0 <= start <= stop <= count:
        raise ArgumentError(f"elements {start} to {stop} are out of range: there are {count}")
    if out is None:
        check_framework(framework)
        like = ("splitzip", None) if opened._like is None else opened._like[number]
        like = like if framework in (None, like[0]) else (framework, None)
        out = empty(like, dtype, (stop - start,), None)
    _splitzip.decode_elements(opened._view, number, start, stop, view_of(out, dtype, None, True))
    return out


def tensor_number(frame: Frame, tensor: int | str) -> int:
    """The number of a tensor in a frame, by number or name."""
    if isinstance(tensor, str):
        found = [number for number, name in enumerate(frame.names) if name == tensor]
        if len(found) != 1:
            raise ArgumentError(f"the frame has {len(found)} tensors named {tensor!r}, and one is needed")
        return found[0]
    if not 0 <= tensor < len(frame._spec):
        raise ArgumentError(f"there is no tensor {tensor}: the frame has {len(frame._spec)}")
    return tensor


def _open(frame: Any, stream: Any) -> Frame:
    return frame if isinstance(frame, Frame) else Frame(frame, stream=stream)


def max_compressed_size(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    scheme: Scheme = "w2x3",
    bases: Bases = "chunk",
    checksums: Checksums = "tensor",
    name: str = "",
) -> int:
    """The most bytes that a frame of one tensor can have, whatever its elements are. For more tensors see :attr:`Codec.max_nbytes`.

    Parameters
    ----------
    shape
        The shape, or the number of elements.
    dtype, scheme, bases, checksums, name
        As for :func:`compress`. For ``"auto"`` it is the largest of all.

    Returns
    -------
    int
    """
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    known = dtype_name(dtype)
    if known is None:
        raise ArgumentError("the dtype is needed to say how large a frame can be")
    if known == "bytes":
        scheme, bases = "stored", "chunk"
    schemes = ["stored", "w4", "w3", "w2x3", "w2x2x3"] if scheme == "auto" else [scheme]
    all_bases = ["chunk", "channel"] if bases == "auto" else [bases]
    sizes = []
    refused: Exception | None = None
    for one in schemes:
        for base in all_bases:
            try:
                sizes.append(_splitzip.Spec([(name, 0, known, one, base, dims)], checksums).max_frame_bytes)
            except ArgumentError as error:
                refused = error
    if not sizes:
        assert refused is not None
        raise refused
    return max(sizes)


def inspect(frame: Any) -> dict[str, Any]:
    """What a frame is: sizes, flags, and for every tensor dtype, scheme, bases, shape, modes of chunks, checksum and codebook.

    Parameters
    ----------
    frame
        A :class:`Frame`, or memory that starts with one. From a device it is copied.

    Returns
    -------
    dict
    """
    return _open(frame, None).inspect()


def calibrate(tensors: Any, *, dtype: Any = None) -> Any:
    """Codebooks for ``w4``, from the exponents of tensors.

    A codebook that was made before spares a device the sample of every tensor, and both sides of a transfer may agree on it.

    Parameters
    ----------
    tensors
        One tensor, a list (counted together), or a dict by name. Those of a device are copied to the host.
    dtype
        As for :func:`compress`.

    Returns
    -------
    Codebook, or dict of them by name
    """
    if isinstance(tensors, Mapping):
        return {name: calibrate(tensor, dtype=dtype) for name, tensor in tensors.items()}
    listed = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    if not listed:
        raise ArgumentError("there are no tensors to calibrate on")
    total: list[int] | None = None
    known = None
    for tensor in listed:
        views, cuda, handle = views_of([tensor], [dtype], None)
        view = views[0]
        if cuda is not None:
            view = view_of(_splitzip.device_read(view, 0, view.nbytes, handle), view.dtype)
        counts = _splitzip.histogram(view)
        if known not in (None, view.dtype):
            raise ArgumentError(f"a codebook is for one dtype, and the tensors are {known} and {view.dtype}")
        known = view.dtype
        total = counts if total is None else [a + b for a, b in zip(total, counts)]
    assert known is not None and total is not None
    return _splitzip.codebook_of_counts(known, total)


def codebooks_to_json(codebooks: Mapping[str, Codebook], default: Codebook | None = None) -> str:
    """The text of a codebook file, as ``splitzip calibrate`` writes it and ``splitzip compress --codebook`` reads it.

    Parameters
    ----------
    codebooks
        By the names of tensors.
    default
        For tensors whose name it does not have.

    Returns
    -------
    str
    """
    return _splitzip.codebooks_to_json(dict(codebooks), default)


def codebooks_from_json(text: str) -> tuple[dict[str, Codebook], Codebook | None]:
    """The codebooks of a codebook file, by name, and the default if it has one.

    Parameters
    ----------
    text
        What the file holds.

    Returns
    -------
    dict of Codebook, Codebook or None
    """
    return _splitzip.codebooks_from_json(text)


def cuda_devices() -> list[dict[str, Any]]:
    """The CUDA devices of this machine: ``ordinal``, ``name``, ``compute_capability`` and ``memory``; an empty list without a driver."""
    from .errors import CudaUnavailableError

    try:
        return _splitzip.devices()
    except CudaUnavailableError:
        return []


__all__ = [
    "Tensor",
    "calibrate",
    "codebooks_from_json",
    "codebooks_to_json",
    "compress",
    "compress_batch",
    "cuda_devices",
    "decompress",
    "decompress_batch",
    "decompress_range",
    "inspect",
    "max_compressed_size",
]
