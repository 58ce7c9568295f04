"""Tensors on a CUDA device. Needs PyTorch and a GPU: ``python test_cuda.py`` runs everything without pytest, and fails where there is none; under
pytest it is skipped there, loudly."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

import splitzip

if torch is None:
    MISSING = "PyTorch is not installed"
elif not torch.cuda.is_available():
    MISSING = "PyTorch sees no CUDA device"
else:
    MISSING = ""

if "pytest" in sys.modules and MISSING:
    import pytest

    pytest.skip(f"SKIPPED: {MISSING}, so NOTHING of the CUDA path was tested", allow_module_level=True)

if not MISSING:
    DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
SCHEMES = ["w4", "w3", "w2x3", "w2x2x3"]


@contextlib.contextmanager
def raises(error: type[BaseException], text: str) -> Iterator[None]:
    """As that of pytest, which is not here."""
    try:
        yield
    except error as raised:
        assert text in str(raised), f"{text!r} is not in {raised!s}"
        return
    raise AssertionError(f"{error.__name__} was not raised")


def words_of(tensor: Any) -> Any:
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.uint8)


def assert_same(decoded: Any, tensor: Any) -> None:
    assert (decoded.dtype, decoded.shape, decoded.device) == (tensor.dtype, tensor.shape, tensor.device)
    assert torch.equal(words_of(decoded), words_of(tensor))


def normal(dtype: str, *shape: int, seed: int = 0, device: str = "cuda:0") -> Any:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(DTYPES[dtype]).to(device)


def every_word(dtype: str) -> Any:
    bits = 8 * DTYPES[dtype].itemsize
    words = torch.arange(1 << bits, dtype=torch.int32).to(torch.int16 if bits == 16 else torch.uint8)
    return words.view(DTYPES[dtype]).reshape(-1, 64).to("cuda:0")


class OnlyDlpack:
    """A tensor of a library that is not PyTorch."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.tensor.__dlpack__(**arguments)


class OnlyInterface:
    """The same with ``__cuda_array_interface__``, which cannot say bf16."""

    def __init__(self, tensor: Any, typestr: str, stream: int | None = None) -> None:
        self.tensor, self.typestr, self.stream = tensor, typestr, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.tensor.data_ptr(), False),
            "shape": tuple(self.tensor.shape),
            "typestr": self.typestr,
            "strides": None,
            "stream": self.stream,
            "version": 3,
        }


def test_every_word_of_every_member() -> None:
    for dtype in DTYPES:
        for scheme in SCHEMES:
            for bases in ("chunk", "channel"):
                if (dtype, scheme) == ("e4m3", "w4") or (scheme, bases) == ("w4", "channel"):
                    continue
                for tensor in (every_word(dtype), normal(dtype, 777, 64), normal(dtype, 4096, 128)):
                    frame = splitzip.compress(tensor, scheme=scheme, bases=bases)
                    assert frame.device == "cuda:0"
                    assert_same(splitzip.decompress(frame), tensor)
                    # The same bytes as on the host, so each side reads the frames of the other.
                    host = splitzip.compress(tensor.cpu(), scheme=scheme, bases=bases)
                    assert bytes(frame) == bytes(host), (dtype, scheme, bases)


def test_sizes() -> None:
    for dtype in DTYPES:
        for elements in (0, 1, 2, 31, 1023, 1024, 1025, 4097, 16384, 16385, 1_000_001):
            tensor = normal(dtype, elements)
            frame = splitzip.compress(tensor)
            assert_same(splitzip.decompress(frame), tensor)
            assert bytes(frame) == bytes(splitzip.compress(tensor.cpu()))


def test_frames_cross() -> None:
    tensor = normal("bf16", 100, 128)
    host = splitzip.compress(tensor.cpu())
    memory = torch.frombuffer(bytearray(bytes(host)), dtype=torch.uint8).to("cuda:0")
    assert_same(splitzip.decompress(memory), tensor)
    held = splitzip.Frame(memory)
    assert (held.nbytes, held.dtypes, held.shapes) == (host.nbytes, ["bf16"], [(100, 128)])
    frame = splitzip.compress(tensor)
    assert_same(splitzip.decompress(frame.cpu()), tensor.cpu())
    assert splitzip.inspect(frame) == splitzip.inspect(host)


def test_batches() -> None:
    tensors = {f"layers.{n}.{kv}": normal("bf16", 300, 2, 128, seed=n) for n in range(40) for kv in "kv"}
    tensors |= {"scales": torch.randn(9, device="cuda:0"), "empty": normal("e5m2", 0, 64)}
    options: Any = {"dtype": {"scales": "bytes"}, "bases": "channel", "layout_id": 5}
    options["bases"] = ["channel"] * 80 + ["chunk"] * 2
    frame = splitzip.compress_batch(tensors, **options)
    host = splitzip.compress_batch({name: tensor.cpu() for name, tensor in tensors.items()}, **options)
    assert bytes(frame) == bytes(host)
    for decoded, tensor in zip(splitzip.decompress_batch(frame), tensors.values()):
        assert decoded.dtype == tensor.dtype and torch.equal(words_of_any(decoded), words_of_any(tensor))
    arrival = splitzip.compress_batch(tensors, arrival=True, **options)
    for decoded, tensor in zip(splitzip.decompress_batch(arrival), tensors.values()):
        assert torch.equal(words_of_any(decoded), words_of_any(tensor))


def words_of_any(tensor: Any) -> Any:
    return tensor.view(torch.uint8)


def test_codebooks() -> None:
    tensor = normal("bf16", 500, 128)
    codebook = splitzip.calibrate(tensor)
    assert codebook == splitzip.calibrate(tensor.cpu())
    for book in (None, codebook):
        frame = splitzip.compress(tensor, scheme="w4", codebook=book)
        assert bytes(frame) == bytes(splitzip.compress(tensor.cpu(), scheme="w4", codebook=book))
        assert_same(splitzip.decompress(frame), tensor)


def test_it_does_not_wait() -> None:
    tensor = normal("bf16", 1 << 20)
    codec = splitzip.Codec(("bf16", tensor.shape), device="cuda:0")
    frame, out = codec.empty_frame(), torch.empty_like(tensor)
    codec.decode(codec.encode(tensor, out=frame), out=out)
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)
    queued = torch.cuda.Event()
    queued.record()
    start = time.perf_counter()
    made = codec.encode(tensor, out=frame)
    codec.decode(made, out=out)
    spent = time.perf_counter() - start
    assert not queued.query(), "the device was done before the calls: nothing was seen"
    assert spent < 0.05, f"the calls took {spent} s while the device was busy"
    assert made.nbytes > 0 and queued.query()
    codec.check()
    assert_same(out, tensor)


def test_side_streams() -> None:
    """What runs before on the stream is seen, with no waiting in between."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    codec = splitzip.Codec(("bf16", (1 << 20,)), device="cuda:0")
    results = []
    for number, stream in enumerate(streams * 4):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            tensor = torch.randn(1 << 20, device="cuda:0").to(torch.bfloat16)
            decoded = codec.decode(codec.encode(tensor))
            results.append((tensor, decoded, torch.equal(words_of(tensor), words_of(decoded))))
        assert results[-1][2], f"stream {number}"
    codec.check()
    tensor = normal("bf16", 5000)
    torch.cuda.synchronize()
    for stream in (streams[0], streams[0].cuda_stream):
        frame = splitzip.compress(tensor, stream=stream)
        assert_same(splitzip.decompress(frame, stream=stream), tensor)
    with raises(splitzip.ArgumentError, "str is no stream"):
        splitzip.compress(tensor, stream="side")


def test_threads() -> None:
    """Fresh threads have no context and no current device."""
    tensors = [normal("bf16", 200_000, seed=seed) for seed in range(4)]
    codec = splitzip.Codec(("bf16", (200_000,)), device="cuda:0")
    torch.cuda.synchronize()
    wrong: list[str] = []

    def work(tensor: Any) -> None:
        try:
            stream = torch.cuda.Stream()
            for _ in range(20):
                with torch.cuda.stream(stream):
                    assert_same(codec.decode(codec.encode(tensor), check=True), tensor)
                    assert_same(splitzip.decompress(splitzip.compress(tensor)), tensor)
        except BaseException:
            wrong.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(tensor,)) for tensor in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_other_devices() -> None:
    """With one device: calls leave the current one as it is. With two: the other one works while this one is current."""
    assert torch.cuda.current_device() == 0
    last = torch.cuda.device_count() - 1
    tensor = normal("bf16", 5000, device=f"cuda:{last}")
    frame = splitzip.compress(tensor)
    assert frame.device == f"cuda:{last}"
    assert_same(splitzip.decompress(frame), tensor)
    assert torch.cuda.current_device() == 0
    if last == 0:
        print("    one device only: the work on another one was NOT tested")
        return
    first = normal("bf16", 5000)
    for device in (0, last, 0):
        with torch.cuda.device(device):
            assert_same(splitzip.decompress(splitzip.compress(tensor)), tensor)
            assert_same(splitzip.decompress(splitzip.compress(first)), first)
            assert torch.cuda.current_device() == device
    with raises(splitzip.ArgumentError, "on one device"):
        splitzip.compress_batch([tensor, first])
    with raises(splitzip.ArgumentError, "another device"):
        splitzip.compress(tensor, stream=torch.cuda.Stream(0))


def test_graphs() -> None:
    """Encode and decode are captured once, also as the first calls of a codec, and replayed over other elements."""
    shapes = {"k": ("bf16", (512, 128)), "v": ("e4m3", (512, 128)), "short": ("fp16", (1000,))}
    for scheme in ("w4", "w2x3"):
        schemes = {name: "w3" if name == "v" and scheme == "w4" else scheme for name in shapes}
        codec = splitzip.Codec(shapes, scheme=schemes, device="cuda:0")
        inputs = {name: normal(dtype, *shape) for name, (dtype, shape) in shapes.items()}
        outputs = {name: torch.empty_like(tensor) for name, tensor in inputs.items()}
        memory = codec.empty_frame()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            frame = codec.encode(inputs, out=memory)
            codec.decode(frame, out=outputs)
        for seed in range(5):
            for name, (dtype, shape) in shapes.items():
                inputs[name].copy_(normal(dtype, *shape, seed=seed))
                outputs[name].view(torch.uint8).zero_()
            graph.replay()
            torch.cuda.synchronize()
            for name, tensor in inputs.items():
                assert_same(outputs[name], tensor)
            expected = splitzip.compress_batch({name: tensor.cpu() for name, tensor in inputs.items()}, scheme=schemes)
            assert memory[: expected.nbytes].cpu().numpy().tobytes() == bytes(expected)
        codec.check()
        # Outside of the graph it works as before.
        for decoded, tensor in zip(codec.decode(codec.encode(inputs), check=True), inputs.values()):
            assert_same(decoded, tensor)


def test_dlpack() -> None:
    tensor = normal("bf16", 300, 64)
    for dtype in DTYPES:
        other = OnlyDlpack(normal(dtype, 300, 64))
        frame = splitzip.compress(other)
        assert frame.dtypes == [dtype]
        assert_same(splitzip.decompress(frame), other.tensor)
    frame = splitzip.compress(tensor)
    exported = torch.from_dlpack(frame)
    assert exported.device.type == "cuda" and exported.cpu().numpy().tobytes() == bytes(frame)
    out = OnlyDlpack(torch.empty_like(tensor))
    assert splitzip.decompress(frame, out=out) is out
    assert_same(out.tensor, tensor)
    memory = OnlyDlpack(torch.empty(frame.max_nbytes, dtype=torch.uint8, device="cuda:0"))
    assert bytes(splitzip.compress(tensor, out=memory)) == bytes(frame)


def test_cuda_array_interface() -> None:
    tensor = normal("bf16", 300, 64)
    expected = bytes(splitzip.compress(tensor.cpu()))
    torch.cuda.synchronize()
    assert bytes(splitzip.compress(OnlyInterface(tensor, "<f2"), dtype="bf16")) == expected
    assert bytes(splitzip.compress(OnlyInterface(tensor, "<u2"), dtype=torch.bfloat16)) == expected
    with raises(splitzip.DtypeError, "for bf16 and fp16 alike"):
        splitzip.compress(OnlyInterface(tensor, "<f2"))
    out = torch.empty_like(tensor)
    splitzip.decompress(splitzip.compress(tensor), out=OnlyInterface(out, "<f2"))
    assert_same(out, tensor)
    # The stream that it names is waited for.
    side = torch.cuda.Stream()
    late = torch.zeros(1 << 20, dtype=torch.bfloat16, device="cuda:0")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        late.copy_(normal("bf16", 1 << 20))
    frame = splitzip.compress(OnlyInterface(late, "<f2", side.cuda_stream), dtype="bf16")
    decoded = splitzip.decompress(frame)
    torch.cuda.synchronize()
    assert_same(decoded, late)
    with raises(splitzip.ArgumentError, "stream 0, which means nothing"):
        splitzip.compress(OnlyInterface(tensor, "<f2", 0), dtype="bf16")

    class Nowhere:
        __cuda_array_interface__ = {"data": (4096, False), "shape": (8,), "typestr": "<f2", "version": 3}

    with raises(splitzip.ArgumentError, "is no memory of a CUDA device"):
        splitzip.compress(Nowhere(), dtype="bf16")


def test_views_of_fp8() -> None:
    for dtype in ("e4m3", "e5m2"):
        tensor = normal(dtype, 300, 64)
        frame = splitzip.compress(tensor.view(torch.uint8), dtype=dtype)
        assert frame.dtypes == [dtype] and bytes(frame) == bytes(splitzip.compress(tensor))
        decoded = splitzip.decompress(frame)
        assert decoded.dtype == torch.uint8 and torch.equal(decoded, tensor.view(torch.uint8))


def test_memory_of_the_driver() -> None:
    """Frames where no framework has an allocator."""
    from splitzip import _splitzip

    tensor = normal("bf16", 300, 64)
    codec = splitzip.Codec(("bf16", tensor.shape), device="cuda:0")
    memory = _splitzip.DeviceMemory(0, codec.max_nbytes)
    assert bytes(codec.encode(tensor, out=memory)) == bytes(splitzip.compress(tensor.cpu()))


def test_pinned_memory_is_of_the_host() -> None:
    tensor = normal("bf16", 300, 64).cpu().pin_memory()
    frame = splitzip.compress(tensor)
    assert frame.device == "cpu" and torch.equal(words_of(splitzip.decompress(frame)), words_of(tensor))


def test_what_is_refused() -> None:
    tensor = normal("bf16", 300, 64)
    frame = splitzip.compress(tensor)
    with raises(splitzip.ArgumentError, "give contiguous tensors"):
        splitzip.compress(tensor.t())
    with raises(splitzip.CudaError, "it must be a multiple of 16"):
        splitzip.compress(tensor.reshape(-1)[1:])
    with raises(splitzip.ArgumentError, "on one device"):
        splitzip.compress_batch([tensor, tensor.cpu()])
    with raises(splitzip.ArgumentError, "in memory of the host"):
        splitzip.decompress(frame, out=tensor.cpu())
    with raises(splitzip.ArgumentError, "in device memory and the frame in that of the host"):
        splitzip.decompress(frame.cpu(), out=tensor)
    with raises(splitzip.BufferSizeError, "bytes, but needs"):
        splitzip.compress(tensor, out=torch.empty(1000, dtype=torch.uint8, device="cuda:0"))
    with raises(splitzip.ArgumentError, "shares memory with an input"):
        memory = torch.zeros(100_000, dtype=torch.uint8, device="cuda:0")
        splitzip.compress(memory[:2048], dtype="bf16", out=memory)
    with raises(splitzip.UnsupportedError, "auto looks at the elements"):
        splitzip.compress(tensor, scheme="auto")
    with raises(splitzip.UnsupportedError, "packed"):
        splitzip.compress(tensor, packed=True)
    with raises(splitzip.UnsupportedError, "frame.cpu()"):
        _ = frame.data
    with raises(splitzip.CudaUnavailableError, "there is no cuda:99"):
        splitzip.Codec(("bf16", (64,)), device="cuda:99")
    with raises(splitzip.UnsupportedError, "need an allocator"):
        splitzip.decompress(frame, framework="numpy")


def test_damaged_frames() -> None:
    """No damage is reported as right, and no other memory is touched."""
    tensor = normal("bf16", 50_000)
    frame = splitzip.compress(tensor, scheme="w2x2x3")
    memory, size = frame.memory, frame.nbytes
    around = torch.full((tensor.numel() + 4096,), 7, dtype=torch.int16, device="cuda:0")
    out = around[2048:-2048].view(torch.bfloat16)
    generator, unseen = torch.Generator().manual_seed(1), 0
    for at in [*range(0, 200), *torch.randint(200, size, (300,), generator=generator).tolist()]:
        damaged = memory.clone()
        damaged[at] ^= 1 << (at % 8)
        try:
            splitzip.decompress(damaged, out=out)
        except splitzip.FrameError:
            pass
        else:
            # A byte between the parts of a frame, which no device reads.
            assert torch.equal(words_of(out), words_of(tensor)), f"byte {at} was changed, and nobody has seen it"
            unseen += 1
        assert bool((around[:2048] == 7).all()) and bool((around[-2048:] == 7).all()), at
    assert unseen < 100, f"{unseen} of 500 changes were not seen"
    for length in (300, size // 2, size - 4):
        with raises(splitzip.TruncatedError, "needs"):
            splitzip.decompress(memory[:length].clone(), out=out)
    with raises(splitzip.NotAFrameError, "SPZFRAME"):
        splitzip.decompress(torch.zeros(5000, dtype=torch.uint8, device="cuda:0"))
    assert_same(splitzip.decompress(frame), tensor)
    # Later, with a codec that does not wait.
    codec = splitzip.Codec(("bf16", (50_000,)), scheme="w2x2x3", device="cuda:0")
    codec.decode(frame)
    codec.check()
    torch.cuda.synchronize()
    noise = memory.clone()
    # Static and dynamic part are 200 bytes; behind them modes that do not exist, and lengths that lead nowhere.
    noise[256:] = 0xFF
    codec.decode(noise)
    # One that is checked at once says nothing of those before it, and takes nothing from them.
    codec.decode(frame, check=True)
    with raises(splitzip.CorruptError, "is damaged"):
        codec.check()
    codec.check()
    other = splitzip.compress(normal("bf16", 49_999), scheme="w2x2x3")
    with raises(splitzip.ArgumentError, "holds other tensors than this codec"):
        codec.decode(other.memory if other.max_nbytes >= codec.dense_nbytes else pad(other.memory, codec.max_nbytes), check=True)


def pad(memory: Any, nbytes: int) -> Any:
    return torch.cat([memory, torch.zeros(nbytes, dtype=torch.uint8, device=memory.device)])


def test_what_is_worked_on_is_held() -> None:
    tensor = normal("bf16", 1 << 20)
    copy = tensor.clone()
    codec = splitzip.Codec(("bf16", tensor.shape), device="cuda:0")
    memory = codec.empty_frame()
    # Codecs of earlier tests go now: freeing their memory below would wait for the device.
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)
    frame = codec.encode(tensor, out=memory)
    allocated = torch.cuda.memory_allocated()
    nbytes = tensor.nbytes
    del tensor
    gc.collect()
    assert codec._native.pending == 1, "the device was done already: nothing was seen"
    assert torch.cuda.memory_allocated() == allocated
    torch.cuda.synchronize()
    assert codec._native.pending == 0
    gc.collect()
    assert torch.cuda.memory_allocated() == allocated - nbytes
    assert_same(codec.decode(frame, check=True), copy)


def test_nothing_leaks() -> None:
    tensor = normal("bf16", 4096)
    for _ in range(100):
        splitzip.decompress(splitzip.compress(tensor))
    torch.cuda.synchronize()
    gc.collect()
    before, references = torch.cuda.mem_get_info()[0], sys.getrefcount(tensor)
    for _ in range(10_000):
        splitzip.decompress(splitzip.compress(tensor), check=False)
    torch.cuda.synchronize()
    splitzip.decompress(splitzip.compress(tensor))
    gc.collect()
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20
    assert sys.getrefcount(tensor) <= references + 2


def main(names: dict[str, Any]) -> int:
    """Runs the tests of a module, or those of them that the command line names."""
    if MISSING:
        print(f"SKIPPED: {MISSING}, so NOTHING of the CUDA path was tested")
        return 1
    print(f"splitzip {splitzip.__version__}, PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    tests = {name: test for name, test in names.items() if name.startswith("test_")}
    wanted = sys.argv[1:] or list(tests)
    failed = []
    for name in wanted:
        start = time.perf_counter()
        try:
            tests[name]()
            torch.cuda.synchronize()
            print(f"ok      {name} ({time.perf_counter() - start:.2f} s)", flush=True)
        except Exception:
            failed.append(name)
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(globals()))
