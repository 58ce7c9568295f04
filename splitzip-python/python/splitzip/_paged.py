"""KV in the pages of serving engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Literal

from . import _splitzip
from ._codec import Planned, host_frame, looked_at
from ._frame import Frame
from ._frameworks import device_memory, stream_handle, view_of
from ._options import Bases, Checksums, Scheme, check_threads, check_tokens, codebooks_of
from ._splitzip import Paged
from .errors import ArgumentError, UnsupportedError


def compress_paged(
    paged: Paged,
    pools: Sequence[Any],
    *,
    scheme: Scheme = "w2x3",
    bases: Bases = "chunk",
    checksums: Checksums = "tensor",
    codebook: Any = None,
    packed: bool = False,
    arrival: bool = False,
    out: Any = None,
    stream: Any = None,
    threads: int | None = None,
) -> Frame:
    """Compresses the tensors of a request from their pages into one frame.

    The frame is that of :func:`compress_batch` from the same elements, byte by byte: it can be decompressed into pages of any other layout, or into tensors.

    Parameters
    ----------
    paged
        Where the tensors lie: a :class:`KvLayout`, bound to the pages of the request.
    pools
        The pools, in the order of their numbers in the layout, in the order of their memory: a pool whose dimensions were permuted is refused, since the
        layout says where everything lies. All are in memory of the host, or on one CUDA device.
    scheme, bases
        As for :func:`compress`, but not ``"auto"``; parts that are no floats are stored, and tensors that can have no channel bases have those of chunks.
    codebook
        For ``w4``: one for all tensors, a list, or a dict by name.
    checksums
        As for :func:`compress_batch`. On a device they cost a copy of the elements there, and page ids must be in memory of the host: ``"none"`` goes from the pages into
        the frame.
    packed, arrival, out, stream, threads
        As for :func:`compress_batch`.

    Returns
    -------
    Frame
        On the device of the pools. There the work is queued on the stream; but a plan of the request is made before, which may wait for the device, as does giving it up
        again, with a later call. A :class:`PagedCodec` is made once and never waits.
    """
    _check_names(scheme, bases)
    check_threads(threads)
    spec = paged.spec(scheme, bases, checksums, arrival)
    codebooks = codebooks_of(codebook, paged.names)
    views, cuda, handle = _pools(pools, stream, False)
    if cuda is None:
        return _encode_host(spec, codebooks, paged, views, out, packed, threads)
    if packed:
        raise UnsupportedError("frames are packed on the host; compress without packed=True, and pack frame.cpu()")
    native = _splitzip.DevicePagedCodec(cuda, spec, codebooks, paged, views, None, True, False, handle)
    frame = _encode_device(native, spec, cuda, out, handle)
    _running.hold(native)
    return frame


def decompress_paged(
    frame: Any,
    paged: Paged,
    pools: Sequence[Any],
    *,
    tokens: tuple[int, int] | None = None,
    check: bool = True,
    stream: Any = None,
    threads: int | None = None,
) -> None:
    """Decompresses tensors of a frame into their pages.

    Only the tensors of ``paged`` are decompressed, and only the chunks that hold some of the tokens. No other byte of the pools is written. After an error the pages
    of the request are undefined.

    Tensors of which all tokens are decompressed are verified by checksums of tensors or of chunks, whichever the frame has. Of a part of the tokens the default, checksums of
    tensors, says nothing: compress with ``checksums="chunk"`` or ``"both"`` to have parts verified. Without them damage may give a part other bits, and no error.

    Parameters
    ----------
    frame
        A :class:`Frame`, or memory that starts with one, where the pools are: on the host or on their device.
    paged
        Where the tensors go. :meth:`Paged.select` takes some of them.
    pools
        The pools, writable, as for :func:`compress_paged`.
    tokens
        Which tokens of the frame go to the tokens of ``paged``: ``(start, stop)``. ``None`` is all of them.
    check
        On a device: wait for the result, and verify the frame; its checksums on the host, from a copy of the frame. Without it the call returns when the work is queued,
        and nothing says that a frame was damaged: use a :class:`PagedCodec`, which has a ``check`` for later. The host always verifies, as far as the frame has checksums for
        what is decompressed.
    stream, threads
        As for :func:`decompress`.

    Raises
    ------
    PagedError
        For a frame of another form, pages that a pool does not have, or that are listed twice. (Kernels find the first in page ids of a device, and not the second.)
    """
    check_tokens(tokens)
    check_threads(threads)
    views, cuda, handle = _pools(pools, stream, True)
    opened = frame if isinstance(frame, Frame) else Frame(frame, stream=stream if cuda is not None else None)
    _check_place(opened._cuda, cuda)
    if cuda is None:
        _splitzip.decode_paged(opened._view, tokens, paged, views, threads)
        return
    if opened._spec.packed:
        raise UnsupportedError("packed frames are decoded on the host; compress without packed=True")
    codebooks: list[_splitzip.Codebook | None] = [None] * len(opened._spec)
    native = _splitzip.DevicePagedCodec(cuda, opened._spec, codebooks, paged, views, tokens, False, True, handle)
    native.decode(opened._view, handle, check)
    if not check:
        _running.hold(native)


class PagedCodec(Planned):
    """Compresses and decompresses the pages of one request, again and again.

    The plan of a request (where its pages are, where everything lies in the frame) is made once. On a CUDA device :meth:`encode` with ``out=`` and :meth:`decode` then neither
    allocate nor wait, and can be captured in a CUDA graph. Page ids in memory of the host are part of the plan. Those on the device are read when the work runs, so the same
    codec takes other pages when the numbers have changed.

    Parameters
    ----------
    paged
        Where the tensors lie: a :class:`KvLayout`, bound to the pages of the request. The codec is for just these tensors and tokens.
    pools
        As for :func:`compress_paged`; writable where frames are decoded.
    scheme, bases, checksums, codebook, arrival, threads
        As for :func:`compress_paged`, but without checksums unless one asks for them. Both sides of a transfer must name the same.
    direction
        ``"encode"``, ``"decode"`` or ``"both"``: what plans and workspaces are made for.
    """

    def __init__(
        self,
        paged: Paged,
        pools: Sequence[Any],
        *,
        scheme: Scheme = "w2x3",
        bases: Bases = "chunk",
        checksums: Checksums = "none",
        codebook: Any = None,
        arrival: bool = False,
        direction: Literal["encode", "decode", "both"] = "both",
        threads: int | None = None,
    ) -> None:
        _check_names(scheme, bases)
        check_threads(threads)
        if direction not in ("encode", "decode", "both"):
            raise ArgumentError(f"there is no direction {direction!r}; it must be one of encode, decode, both")
        self._encodes, self._decodes = direction != "decode", direction != "encode"
        self._spec = paged.spec(scheme, bases, checksums, arrival)
        self._codebooks = codebooks_of(codebook, paged.names)
        self._paged = paged
        self._threads = threads
        # The stream of the caller is that of each call: looking at the pools waits for nothing.
        self._pools, self._cuda, _ = _pools(pools, None, self._decodes)
        self._native: _splitzip.DevicePagedCodec | None = None
        if self._cuda is not None:
            self._native = _splitzip.DevicePagedCodec(
                self._cuda, self._spec, self._codebooks, paged, self._pools, None, self._encodes, self._decodes
            )

    def encode(self, *, out: Any = None, stream: Any = None) -> Frame:
        """Compresses the pages into a frame.

        Parameters
        ----------
        out
            Memory of :attr:`max_nbytes` bytes for the frame; on a device its address is a multiple of 128. Without it memory is allocated.
        stream
            On a device: the stream to work on; see :func:`splitzip.compress`.

        Returns
        -------
        Frame
            On a device the work is queued, not done. Where a page id in device memory is none of its pool, asking the frame for its length says that it is damaged.
        """
        self._check_direction(self._encodes, "decoding")
        if self._native is None:
            return _encode_host(self._spec, self._codebooks, self._paged, self._pools, out, False, self._threads)
        assert self._cuda is not None
        return _encode_device(self._native, self._spec, self._cuda, out, stream_handle(stream, self._cuda))

    def decode(self, frame: Any, *, check: bool = False, stream: Any = None) -> None:
        """Decompresses a frame of just these tensors and tokens into the pages.

        Parameters
        ----------
        frame
            A :class:`Frame`, or memory that starts with one, where the pools are.
        check
            As for :meth:`Codec.decode`; checksums are verified on the host. The CPU always checks.
        stream
            On a device: the stream to work on.
        """
        self._check_direction(self._decodes, "encoding")
        handle = 0 if self._cuda is None else stream_handle(stream, self._cuda)
        view = frame._view if isinstance(frame, Frame) else view_of(frame, "raw", handle)
        _check_place(view.cuda, self._cuda)
        if self._native is None:
            _splitzip.decode_paged(view, None, self._paged, self._pools, self._threads)
        else:
            self._native.decode(view, handle, check)

    def _check_direction(self, made: bool, other: str) -> None:
        if not made:
            raise UnsupportedError(f"this codec was made for {other} only; make one with direction=\"both\"")

    def __repr__(self) -> str:
        return f"<PagedCodec for {len(self._spec)} tensors of {self._paged.tokens} tokens, {self.raw_nbytes} bytes, {self.device}>"


class _Running:
    """Codecs of single calls, until the device has done their work."""

    def __init__(self) -> None:
        self._natives: list[_splitzip.DevicePagedCodec] = []
        self._lock = Lock()

    def hold(self, native: _splitzip.DevicePagedCodec) -> None:
        with self._lock:
            held, self._natives = self._natives, [native]
            self._natives += [other for other in held if other.pending != 0]
        # Gives memory back, which no other call has to wait for.
        del held


_running = _Running()


def _encode_host(
    spec: _splitzip.Spec,
    codebooks: list[_splitzip.Codebook | None],
    paged: Paged,
    pools: list[_splitzip.View],
    out: Any,
    packed: bool,
    threads: int | None,
) -> Frame:
    sink = None if out is None else view_of(out, "raw", None, True)
    made, nbytes = _splitzip.encode_paged(spec, codebooks, paged, pools, sink, packed, threads)
    return host_frame(spec, made, nbytes, out, sink, None, packed)


def _encode_device(native: _splitzip.DevicePagedCodec, spec: _splitzip.Spec, cuda: int, out: Any, handle: int) -> Frame:
    memory = device_memory(cuda, spec.max_frame_bytes, handle) if out is None else out
    view = view_of(memory, "raw", handle, True)
    native.encode(view, handle)
    return Frame._made(spec, memory, view, None, handle)


def _pools(pools: Sequence[Any], stream: Any, write: bool) -> tuple[list[_splitzip.View], int | None, int]:
    if isinstance(pools, Mapping) or not isinstance(pools, (list, tuple)):
        raise ArgumentError("the pools are a list, in the order of their numbers in the layout")
    return looked_at("the pools of a request", pools, ["raw"] * len(pools), stream, write)


def _check_names(scheme: str, bases: str) -> None:
    if "auto" in (scheme, bases):
        raise ArgumentError("scheme and bases of pages cannot be auto; name them")


def _check_place(frame: int | None, pools: int | None) -> None:
    if frame == pools:
        return
    where = ["memory of the host" if cuda is None else f"cuda:{cuda}" for cuda in (frame, pools)]
    raise ArgumentError(f"the frame is in {where[0]} and the pools are in {where[1]}; copy the frame there")
