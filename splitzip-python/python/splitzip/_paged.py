"""KV in the pages of serving engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _splitzip
from ._codec import host_frame
from ._frame import Frame
from ._frameworks import cuda_of
from ._options import Bases, Checksums, Scheme, codebooks_of
from ._splitzip import Paged
from .errors import ArgumentError


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
        layout says where everything lies.
    scheme, bases
        As for :func:`compress`, but not ``"auto"``; parts that are no floats are stored, and tensors that can have no channel bases have those of chunks.
    codebook
        For ``w4``: one for all tensors, a list, or a dict by name.
    checksums, packed, arrival, out, threads
        As for :func:`compress_batch`.

    Returns
    -------
    Frame
    """
    if "auto" in (scheme, bases):
        raise ArgumentError("scheme and bases of pages cannot be auto; name them")
    spec = paged.spec(scheme, bases, checksums, arrival)
    codebooks = codebooks_of(codebook, paged.names)
    sink = None if out is None else _splitzip.View(out, "raw", None, True)
    views = _pools(pools, False)
    made, nbytes = _splitzip.encode_paged(spec, codebooks, paged, views, sink, packed, threads)
    return host_frame(spec, made, nbytes, out, sink, None, packed)


def decompress_paged(
    frame: Any,
    paged: Paged,
    pools: Sequence[Any],
    *,
    tokens: tuple[int, int] | None = None,
    threads: int | None = None,
) -> None:
    """Decompresses tensors of a frame into their pages.

    Only the tensors of ``paged`` are decompressed, and only the chunks that hold some of the tokens. No other byte of the pools is written. After an error the pages
    of the request are undefined.

    Parameters
    ----------
    frame
        A :class:`Frame`, or memory of the host that starts with one.
    paged
        Where the tensors go. :meth:`Paged.select` takes some of them.
    pools
        The pools, writable, as for :func:`compress_paged`.
    tokens
        Which tokens of the frame go to the tokens of ``paged``: ``(start, stop)``. ``None`` is all of them.
    threads
        How many; ``None`` is one a core.

    Raises
    ------
    PagedError
        For a frame of another form, pages that a pool does not have, or that are listed twice.
    """
    view = frame._view if isinstance(frame, Frame) else _splitzip.View(frame, "raw")
    _splitzip.decode_paged(view, tokens, paged, _pools(pools, True), threads)


def _pools(pools: Sequence[Any], write: bool) -> list[_splitzip.View]:
    if isinstance(pools, Mapping) or not isinstance(pools, (list, tuple)):
        raise ArgumentError("the pools are a list, in the order of their numbers in the layout")
    return [_splitzip.View(pool, "raw", 0 if cuda_of(pool) is not None else None, write) for pool in pools]
