"""What is compressed comes back, bit for bit."""

from __future__ import annotations

import array
import pickle

import numpy as np
import pytest
import splitzip
from conftest import MEMBERS, NUMPY, SCHEMES, assert_same, normal, words_of


@pytest.mark.parametrize("bases", ["chunk", "channel"])
@pytest.mark.parametrize(("dtype", "scheme"), MEMBERS)
def test_every_word_of_every_member(dtype: str, scheme: str, bases: str) -> None:
    if bases == "channel" and scheme == "w4":
        with pytest.raises(splitzip.ArgumentError, match="w4 has no window"):
            splitzip.compress(normal(dtype, 8, 64), scheme=scheme, bases=bases)
        return
    bits = 8 * NUMPY[dtype].itemsize
    every = np.arange(1 << bits, dtype=f"uint{bits}").view(NUMPY[dtype]).reshape(-1, 64)
    for tensor in (every, normal(dtype, 123, 64), every[:0], every[:1, :64]):
        frame = splitzip.compress(tensor, scheme=scheme, bases=bases, checksums="both")
        assert_same(splitzip.decompress(frame), tensor)
        assert frame.nbytes <= splitzip.max_compressed_size(
            tensor.shape, dtype, scheme=scheme, bases=bases, checksums="both"
        )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_shrinks(fixture: dict[str, np.ndarray], scheme: str) -> None:
    frame = splitzip.compress_batch(fixture, scheme=scheme, checksums="none", packed=True)
    assert frame.ratio > {"w4": 1.30, "w3": 1.39, "w2x3": 1.43, "w2x2x3": 1.43}[scheme]


@pytest.mark.parametrize("elements", [0, 1, 2, 31, 1023, 1024, 1025, 4097, 16384, 16385])
def test_sizes(elements: int) -> None:
    for dtype in NUMPY:
        tensor = normal(dtype, elements)
        assert_same(splitzip.decompress(splitzip.compress(tensor)), tensor)


def test_shapes() -> None:
    for shape in [(), (1,), (0, 5), (5, 0), (2, 3, 4, 5), (1,) * 8]:
        tensor = normal("bf16", *shape)
        frame = splitzip.compress(tensor, name="k")
        assert frame.shapes == [shape]
        assert_same(splitzip.decompress(frame), tensor)
    with pytest.raises(splitzip.ArgumentError, match="at most 8 are allowed"):
        splitzip.compress(normal("bf16", *(1,) * 9))


def test_strides_are_followed() -> None:
    base = normal("bf16", 6, 40, 64)
    views = [
        base.transpose(1, 0, 2),
        base.transpose(2, 1, 0),
        base[:, ::2],
        base[::-1, :, ::-1],
        base[:, :, 3:17],
        np.broadcast_to(base[:1], base.shape),
        np.asfortranarray(base),
        base[:1, :1].transpose(),
    ]
    for view in views:
        frame = splitzip.compress(view)
        assert bytes(frame) == bytes(splitzip.compress(np.ascontiguousarray(view)))
        assert_same(splitzip.decompress(frame), np.ascontiguousarray(view))


def test_outputs_with_strides() -> None:
    tensor = normal("fp16", 6, 40, 64)
    frame = splitzip.compress(tensor)
    around = np.zeros((40, 6, 80), np.float16)
    out = around[:, :, 5:69].transpose(1, 0, 2)
    assert splitzip.decompress(frame, out=out) is out
    assert_same(np.ascontiguousarray(out), tensor)
    assert not around[:, :, :5].any() and not around[:, :, 69:].any()
    with pytest.raises(splitzip.ArgumentError, match="share memory"):
        splitzip.decompress(frame, out=np.lib.stride_tricks.as_strided(around, tensor.shape, (0, 128, 2)))


def test_buffers() -> None:
    words = words_of(normal("bf16", 5000))
    expected = splitzip.compress(words, dtype="bf16")
    data = words.tobytes()
    for buffer in (data, bytearray(data), memoryview(data), array.array("H", data), words.view(np.uint8)):
        assert bytes(splitzip.compress(buffer, dtype="bf16")) == bytes(expected)
    odd = memoryview(b"x" + data)[1:]
    assert bytes(splitzip.compress(odd, dtype="bf16")) == bytes(expected)
    decoded = splitzip.decompress(bytes(expected))
    assert isinstance(decoded, splitzip.Tensor)
    assert (decoded.dtype, decoded.shape, bytes(decoded)) == ("bf16", (5000,), data)
    assert decoded.numpy().dtype == NUMPY["bf16"]
    out = bytearray(len(data))
    splitzip.decompress(expected, out=out)
    assert out == data


def test_outputs_are_as_inputs() -> None:
    for tensor in (normal("bf16", 100), normal("e4m3", 100), words_of(normal("bf16", 100)).reshape(10, 10)):
        dtype = "bf16" if tensor.dtype == np.uint16 else None
        decoded = splitzip.decompress(splitzip.compress(tensor, dtype=dtype))
        assert_same(decoded, tensor)
    raw = np.arange(60, dtype=np.int32).reshape(3, 20)
    assert_same(splitzip.decompress(splitzip.compress(raw, dtype="bytes")), raw)
    octets = words_of(normal("bf16", 100)).view(np.uint8)
    assert_same(splitzip.decompress(splitzip.compress(octets, dtype="bf16")), octets)


def test_frameworks() -> None:
    tensor = normal("bf16", 64)
    frame = splitzip.compress(tensor)
    assert isinstance(splitzip.decompress(frame, framework="splitzip"), splitzip.Tensor)
    assert_same(splitzip.decompress(bytes(frame), framework="numpy"), tensor)
    with pytest.raises(splitzip.ArgumentError, match="there is no framework 'jax'"):
        splitzip.decompress(frame, framework="jax")  # type: ignore[arg-type]


def test_frames_hold_what_they_are_made_of() -> None:
    tensor = normal("bf16", 4096)
    frame = splitzip.compress(tensor)
    data = bytearray(bytes(frame) + b"behind it")
    held = splitzip.Frame(data)
    assert held.nbytes == frame.nbytes == len(frame)
    with pytest.raises(BufferError):
        data.clear()
    assert_same(splitzip.decompress(held, framework="numpy"), tensor)
    copy = pickle.loads(pickle.dumps(frame))
    assert bytes(copy) == bytes(frame)
    assert frame.data.readonly
    assert np.array_equal(np.from_dlpack(frame), np.frombuffer(frame.data, np.uint8))


def test_out_is_used() -> None:
    tensor = normal("bf16", 3000)
    most = splitzip.max_compressed_size(3000, "bf16")
    for out in (bytearray(most), np.full(most + 100, 0xAA, np.uint8)):
        frame = splitzip.compress(tensor, out=out)
        assert frame.memory is out
        assert bytes(frame) == bytes(splitzip.compress(tensor))
    assert (out[most:] == 0xAA).all()
    with pytest.raises(splitzip.BufferSizeError, match=f"has {most - 1} bytes, but needs {most}"):
        splitzip.compress(tensor, out=bytearray(most - 1))


def test_batches() -> None:
    tensors = {"k": normal("bf16", 100, 64), "v": normal("e5m2", 1000), "scales": np.arange(7, dtype=np.float32)}
    options = {"dtype": {"scales": "bytes"}, "scheme": {"k": "w3"}, "bases": {"k": "channel"}}
    frame = splitzip.compress_batch(tensors, layout_id=77, **options)
    assert frame.names == ["k", "v", "scales"]
    assert frame.dtypes == ["bf16", "e5m2", "bytes"]
    assert frame.layout_id == 77
    for decoded, tensor in zip(splitzip.decompress_batch(frame), tensors.values()):
        assert_same(decoded, tensor)
    out = {name: np.zeros_like(tensor) for name, tensor in tensors.items()}
    splitzip.decompress_batch(frame, out=out)
    for name, tensor in tensors.items():
        assert_same(out[name], tensor)
    found = splitzip.inspect(frame)["tensors"]
    assert [(of["scheme"], of["bases"]) for of in found] == [("w3", "channel"), ("w2x3", "chunk"), ("stored", "chunk")]
    assert splitzip.decompress_batch(splitzip.compress_batch([])) == []
    with pytest.raises(splitzip.ArgumentError, match="the frame has 3 tensors; use decompress_batch"):
        splitzip.decompress(frame)


def test_ranges() -> None:
    tensors = {"k": normal("bf16", 50, 128), "v": normal("e4m3", 10_000)}
    frame = splitzip.compress_batch(tensors)
    for name, tensor in tensors.items():
        flat = tensor.reshape(-1)
        for start, stop in [(0, 0), (0, 1), (1023, 1025), (5, 5555), (flat.size - 1, flat.size), (0, flat.size)]:
            assert_same(splitzip.decompress_range(frame, name, start, stop), flat[start:stop])
    with pytest.raises(splitzip.ArgumentError, match="there are 6400"):
        splitzip.decompress_range(frame, 0, 0, 6401)
    with pytest.raises(splitzip.ArgumentError, match="0 tensors named 'q'"):
        splitzip.decompress_range(frame, "q", 0, 1)


def test_auto() -> None:
    tensor = normal("bf16", 64, 128)
    sizes = {scheme: splitzip.compress(tensor, scheme=scheme).nbytes for scheme in SCHEMES}
    assert splitzip.compress(tensor, scheme="auto").nbytes == min(sizes.values())
    noise = np.random.default_rng(0).integers(0, 1 << 16, 8192, np.uint16)
    stored = splitzip.compress(noise, dtype="bf16", scheme="auto")
    assert splitzip.inspect(stored)["tensors"][0]["scheme"] == "stored"


def test_codebooks() -> None:
    tensor = normal("bf16", 64, 128)
    codebook = splitzip.calibrate(tensor)
    assert codebook == splitzip.Codebook("bf16", codebook.exponents)
    assert pickle.loads(pickle.dumps(codebook)) == codebook
    frame = splitzip.compress(tensor, scheme="w4", codebook=codebook)
    assert splitzip.inspect(frame)["tensors"][0]["codebook"] == codebook
    assert_same(splitzip.decompress(frame), tensor)
    by_name = splitzip.calibrate({"k": tensor, "v": tensor[:3]})
    text = splitzip.codebooks_to_json(by_name, codebook)
    assert splitzip.codebooks_from_json(text) == (by_name, codebook)
    assert splitzip.calibrate([tensor[:32], tensor[32:]]) == codebook
    with pytest.raises(splitzip.CodebookError, match="is for bf16, but the tensor is e5m2"):
        splitzip.compress(normal("e5m2", 64), scheme="w4", codebook=codebook)


def test_codecs() -> None:
    tensors = {"k": normal("bf16", 160, 64), "v": normal("fp16", 160, 64)}
    forms = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    codec = splitzip.Codec(forms, scheme="w2x2x3", bases="channel", threads=1)
    out = codec.empty_frame()
    assert len(out) == codec.max_nbytes
    frame = codec.encode(tensors, out=out)
    assert bytes(frame) == bytes(splitzip.compress_batch(tensors, scheme="w2x2x3", bases="channel"))
    for decoded, tensor in zip(codec.decode(frame), tensors.values()):
        assert_same(decoded, tensor)
    single = splitzip.Codec(("bf16", (160, 64)))
    assert_same(single.decode(single.encode(tensors["k"])), tensors["k"])
    with pytest.raises(splitzip.ArgumentError, match="holds other tensors than this codec"):
        single.decode(frame)
    with pytest.raises(splitzip.ArgumentError, match="has the shape"):
        single.encode(tensors["k"][1:])
    with pytest.raises(splitzip.ArgumentError, match="cannot be auto"):
        splitzip.Codec(("bf16", (8,)), scheme="auto")


def test_maximum_is_never_passed() -> None:
    rng = np.random.default_rng(1)
    for elements in (1, 1024, 5000):
        noise = rng.integers(0, 1 << 16, elements, np.uint16)
        for scheme in SCHEMES:
            most = splitzip.max_compressed_size(elements, "bf16", scheme=scheme)
            out = np.full(most + 64, 0x5A, np.uint8)
            frame = splitzip.compress(noise, dtype="bf16", scheme=scheme, out=out)
            assert frame.nbytes <= most and (out[most:] == 0x5A).all()
    assert splitzip.max_compressed_size(5000, "bf16", scheme="auto", bases="auto") >= splitzip.max_compressed_size(5000, "bf16")
