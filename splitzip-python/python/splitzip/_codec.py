"""Everything that coding one kind of frame takes, made once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from . import _splitzip
from ._dtypes import dtype_name
from ._frame import Frame
from ._frameworks import Like, check_framework, cuda_of, device_memory, empty, like_of, stream_handle, view_of
from ._options import Bases, Checksums, Framework, Scheme, Tensors, check_threads, codebooks_of, each, named
from .errors import ArgumentError, UnsupportedError

# Dtype and shape of a tensor.
Form = tuple[Any, Sequence[int]]


def cuda_number(device: Any) -> int | None:
    """The number of a CUDA device by its name or object; ``None`` for the host."""
    name = str(device)
    if name == "cpu":
        return None
    kind, _, number = name.partition(":")
    if kind != "cuda" or not (number == "" or number.isdigit()):
        raise ArgumentError(f"there is no device {name!r}; it must be cpu, cuda, or cuda: and a number")
    return int(number or 0)


def _forms(tensors: Any) -> tuple[Tensors, bool]:
    """A list or dict of forms, and whether one was given alone."""
    single = isinstance(tensors, tuple) and len(tensors) == 2 and isinstance(tensors[1], (tuple, list))
    single = single and not isinstance(tensors[0], (tuple, list))
    return ([tensors] if single else tensors), single


class Planned:
    """What is known of frames before there are any, and the native codec of a device."""

    _spec: _splitzip.Spec
    _cuda: int | None
    _native: _splitzip.DeviceCodec | _splitzip.DevicePagedCodec | None

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:0"``."""
        return "cpu" if self._cuda is None else f"cuda:{self._cuda}"

    @property
    def raw_nbytes(self) -> int:
        """Bytes of all tensors."""
        return self._spec.raw_bytes

    @property
    def max_nbytes(self) -> int:
        """Bytes that memory for a frame needs."""
        return self._spec.max_frame_bytes

    @property
    def dense_nbytes(self) -> int:
        """Bytes of the start of a frame whose size is known before anything is encoded: a sender can post them first."""
        return self._spec.dense_bytes

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory that each stream takes; 0 on the CPU, where a workspace lives as long as a call."""
        return 0 if self._native is None else self._native.workspace_bytes

    def empty_frame(self) -> Any:
        """Memory for a frame: a ``bytearray``, or memory of the device."""
        return bytearray(self.max_nbytes) if self._cuda is None else device_memory(self._cuda, self.max_nbytes)

    def check(self) -> None:
        """Waits for the device, and raises :class:`CorruptError` if a frame was damaged that :meth:`decode` has taken since the last time.

        Not while a stream is captured. On the CPU there is nothing to wait for.
        """
        if self._native is not None:
            self._native.check()


class Codec(Planned):
    """Compresses and decompresses tensors of fixed dtypes and shapes, again and again.

    The layout of the frame, and on a CUDA device kernels, tables and a workspace for each stream, are made once. After that ``encode`` and ``decode`` with
    ``out=`` neither allocate nor wait on a device, so they can be captured in a CUDA graph.

    Parameters
    ----------
    tensors
        What the tensors are: one ``(dtype, shape)``, a list of them, or a dict by name.
    scheme, bases
        As for :func:`splitzip.compress`, but not ``"auto"``: nothing is known of the elements.
    checksums
        ``"none"``, ``"tensor"``, ``"chunk"`` or ``"both"``. On a device each is a launch more for every tensor.
    codebook
        For ``w4``: one, a list, or a dict by name. ``None`` takes one from a sample of each tensor.
    layout_id
        A number that both sides may compare.
    arrival
        Groups of chunks lie in the order in which they were finished: faster on a device, and not the same bytes every time.
    device
        ``"cpu"``, ``"cuda:0"``, or a ``torch.device``.
    threads
        On the CPU: how many; ``None`` is one a core.
    """

    def __init__(
        self,
        tensors: Form | Sequence[Form] | Mapping[str, Form],
        *,
        scheme: Scheme = "w2x3",
        bases: Bases = "chunk",
        checksums: Checksums = "tensor",
        codebook: Any = None,
        layout_id: int = 0,
        arrival: bool = False,
        device: Any = "cpu",
        threads: int | None = None,
    ) -> None:
        forms, single = _forms(tensors)
        names, listed = named(forms, None)
        schemes, all_bases = each("scheme", scheme, names), each("bases", bases, names)
        described = []
        for name, (dtype, shape), one, base in zip(names, listed, schemes, all_bases):
            if "auto" in (one, base):
                raise ArgumentError("a codec is made before there are elements, so scheme and bases cannot be auto; name them")
            dtype = dtype_name(dtype)
            if dtype is None:
                raise ArgumentError("a codec needs the dtype of every tensor")
            described.append((name, 0, dtype, "stored" if dtype == "bytes" else one, base if dtype != "bytes" else "chunk", tuple(shape)))
        spec = _splitzip.Spec(described, checksums, arrival, layout_id)
        self._init(spec, codebooks_of(codebook, names), cuda_number(device), threads, single)

    def _init(
        self,
        spec: _splitzip.Spec,
        codebooks: list[_splitzip.Codebook | None],
        cuda: int | None,
        threads: int | None,
        single: bool,
        encodes: bool = True,
    ) -> None:
        check_threads(threads)
        self._spec = spec
        self._codebooks = codebooks
        self._cuda = cuda
        self._threads = threads
        self._single = single
        self._dtypes = [tensor[2] for tensor in spec.tensors]
        self._shapes = [tensor[5] for tensor in spec.tensors]
        self._native: _splitzip.DeviceCodec | None
        self._native = None if cuda is None else _splitzip.DeviceCodec(cuda, spec, codebooks, encodes)

    @classmethod
    def _for(
        cls,
        spec: _splitzip.Spec,
        codebooks: list[_splitzip.Codebook | None],
        cuda: int | None,
        threads: int | None,
        encodes: bool = True,
    ) -> Codec:
        codec = cls.__new__(cls)
        codec._init(spec, codebooks, cuda, threads, False, encodes)
        return codec

    def encode(self, tensors: Any, *, out: Any = None, stream: Any = None) -> Frame:
        """Compresses tensors into a frame.

        Parameters
        ----------
        tensors
            One tensor if the codec is for one; else a list, or a dict by name.
        out
            Memory of :attr:`max_nbytes` bytes for the frame. On a device its address is a multiple of 128. Without it memory is allocated.
        stream
            On a device: the stream to work on; see :func:`splitzip.compress`.

        Returns
        -------
        Frame
            It holds ``out``. On a device the work is queued, not done.
        """
        listed = self._listed(tensors)
        handle = 0 if self._cuda is None else stream_handle(stream, self._cuda)
        views = [view_of(tensor, dtype, handle) for tensor, dtype in zip(listed, self._dtypes)]
        for number, (view, shape) in enumerate(zip(views, self._shapes)):
            if view.shape != shape:
                raise ArgumentError(f"tensor {number} has the shape {view.shape}, and this codec is for {shape}")
        return self._encode_views(views, out, handle, [like_of(tensor) for tensor in listed])

    def _encode_views(
        self, views: list[_splitzip.View], out: Any, handle: int, like: list[Like], packed: bool = False
    ) -> Frame:
        if self._native is None:
            return encode_host(self._spec, self._codebooks, views, out, like, packed, self._threads)
        assert self._cuda is not None
        memory = device_memory(self._cuda, self.max_nbytes, handle) if out is None else out
        view = view_of(memory, "raw", handle, True)
        self._native.encode(views, view, handle)
        return Frame._made(self._spec, memory, view, None, handle, like)

    def decode(
        self, frame: Any, *, out: Any = None, check: bool = False, framework: Framework | None = None, stream: Any = None
    ) -> Any:
        """Decompresses a frame of just these tensors.

        Parameters
        ----------
        frame
            A :class:`Frame`, or memory that starts with one.
        out
            The outputs, as ``tensors`` of :meth:`encode`. Without it they are allocated, as :func:`splitzip.decompress` does.
        check
            On a device: wait, and compare the frame with this codec, its check, and its checksums of tensors. Without it a damaged frame gives undefined elements
            (no other memory is touched) and :meth:`check` says so later; a frame of another form gives undefined elements. The CPU always checks.
        framework
            As for :func:`splitzip.decompress`.
        stream
            On a device: the stream to work on.

        Returns
        -------
        tensor, or list of them
            ``out``, or what was allocated; on a device the work is queued, and with ``check`` done.
        """
        handle = 0 if self._cuda is None else stream_handle(stream, self._cuda)
        if isinstance(frame, Frame):
            view, like = frame._view, frame._like
        else:
            view, like = view_of(frame, "raw", handle), None
        return self._decode_view(view, like, out, check, framework, handle, self._single)

    def _decode_view(
        self,
        frame: _splitzip.View,
        like: Sequence[Like] | None,
        out: Any,
        check: bool,
        framework: Framework | None,
        handle: int,
        single: bool,
    ) -> Any:
        if frame.cuda != self._cuda:
            where = "memory of the host" if frame.cuda is None else f"cuda:{frame.cuda}"
            raise ArgumentError(f"the frame is in {where}, and this codec works on {self.device}; copy it there")
        if self._native is None:
            spec, _ = _splitzip.Spec.parse(frame)
            if spec != self._spec and not (spec.packed and spec.tensors == self._spec.tensors):
                raise ArgumentError("the frame holds other tensors than this codec is for; make a codec for its form, or use decompress")
        outputs = make_outputs(self._spec, like, framework, self._cuda, handle) if out is None else self._listed(out, single)
        views = [view_of(output, dtype, handle, True) for output, dtype in zip(outputs, self._dtypes)]
        if self._native is None:
            _splitzip.decode(frame, views, self._threads)
        else:
            self._native.decode(frame, views, handle, check)
        return outputs[0] if single else outputs

    def _listed(self, tensors: Any, single: bool | None = None) -> list[Any]:
        if self._single if single is None else single:
            return [tensors]
        names = self._spec.names
        if isinstance(tensors, Mapping):
            if sorted(tensors) != sorted(names):
                raise ArgumentError(f"the tensors are {sorted(tensors)}, and there must be {sorted(names)}")
            return [tensors[name] for name in names]
        if not isinstance(tensors, (list, tuple)):
            raise ArgumentError(f"{type(tensors).__name__} is no batch; give a list, a tuple, or a dict of names")
        if len(tensors) != len(names):
            raise ArgumentError(f"{len(tensors)} tensors were given for the {len(names)} of the frame; give one for each, in order")
        return list(tensors)

    def __repr__(self) -> str:
        tensors = len(self._spec)
        return f"<Codec for {tensors} tensor{'s' if tensors != 1 else ''}, {self.raw_nbytes} bytes, {self.device}>"


def encode_host(
    spec: _splitzip.Spec,
    codebooks: list[_splitzip.Codebook | None],
    views: list[_splitzip.View],
    out: Any,
    like: list[Like] | None,
    packed: bool,
    threads: int | None,
) -> Frame:
    check_threads(threads)
    sink = None if out is None else view_of(out, "raw", None, True)
    made, nbytes = _splitzip.encode(spec, codebooks, views, sink, packed, threads)
    return host_frame(spec, made, nbytes, out, sink, like, packed)


def host_frame(
    spec: _splitzip.Spec,
    made: bytearray | None,
    nbytes: int,
    out: Any,
    sink: _splitzip.View | None,
    like: list[Like] | None,
    packed: bool,
) -> Frame:
    memory = out if made is None else made
    view = sink if sink is not None else view_of(memory, "raw")
    if packed:
        spec, nbytes = _splitzip.Spec.parse(view)
    return Frame._made(spec, memory, view, nbytes, like=like)


def make_outputs(
    spec: _splitzip.Spec,
    like: Sequence[Like] | None,
    framework: Framework | None,
    cuda: int | None,
    handle: int | None = None,
) -> list[Any]:
    check_framework(framework)
    outputs = []
    for number, (_, _, dtype, _, _, shape) in enumerate(spec.tensors):
        own: Like = ("splitzip", None) if like is None else like[number]
        if framework is not None and framework != own[0]:
            own = (framework, None)
        outputs.append(empty(own, dtype, shape, cuda, handle))
    return outputs


class _Cache:
    """The last codecs of devices, for calls that make none of their own."""

    MOST = 16

    def __init__(self) -> None:
        self._codecs: OrderedDict[Any, Codec] = OrderedDict()
        self._lock = Lock()

    def get(
        self, spec: _splitzip.Spec, codebooks: list[_splitzip.Codebook | None], cuda: int, encodes: bool
    ) -> Codec:
        key = (cuda, spec, tuple(codebooks), encodes)
        with self._lock:
            codec = self._codecs.get(key)
            if codec is not None:
                self._codecs.move_to_end(key)
                return codec
        codec = Codec._for(spec, codebooks, cuda, None, encodes)
        with self._lock:
            codec = self._codecs.setdefault(key, codec)
            dropped = self._codecs.popitem(last=False)[1] if len(self._codecs) > self.MOST else None
        # Waits for its work, which no other call has to.
        del dropped
        return codec


codecs = _Cache()


def views_of(
    tensors: Sequence[Any], dtypes: Sequence[Any], stream: Any
) -> tuple[list[_splitzip.View], int | None, int]:
    """Looks at tensors of one device: views, its number, and the handle of the stream."""
    names = [dtype_name(dtype) for dtype in dtypes]
    return looked_at("the tensors of a frame", tensors, names, stream, False)


def looked_at(
    what: str, tensors: Sequence[Any], dtypes: Sequence[str | None], stream: Any, write: bool
) -> tuple[list[_splitzip.View], int | None, int]:
    """The same, for dtypes as views take them; ``what`` is named where they are on several devices."""
    cuda = next((number for number in map(cuda_of, tensors) if number is not None), None)
    handle = 0 if cuda is None else stream_handle(stream, cuda)
    views = [view_of(tensor, dtype, handle, write) for tensor, dtype in zip(tensors, dtypes)]
    places = {view.cuda for view in views if view.nbytes != 0}
    if len(places) > 1:
        found = ", ".join(sorted("cpu" if place is None else f"cuda:{place}" for place in places))
        raise ArgumentError(f"{what} are on one device, and these are on {found}; copy some of them")
    found_cuda = places.pop() if places else cuda
    if found_cuda is not None and cuda is None:
        # Only the memory of __cuda_array_interface__ says where it is.
        handle = stream_handle(stream, found_cuda)
    if found_cuda is None and stream is not None:
        raise ArgumentError("a stream was given, but everything is in memory of the host; leave stream out")
    return views, found_cuda, handle


def need_host(what: str) -> UnsupportedError:
    return UnsupportedError(f"{what} works on memory of the host; copy the frame there with Frame.cpu()")


