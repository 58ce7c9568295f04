"""Tensors of PyTorch on the CPU. Skipped, loudly, where it is not installed."""

from __future__ import annotations

import numpy as np
import pytest
import splitzip

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed, so its CPU tensors were not tested")

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def words_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.uint8)


def assert_same(decoded: torch.Tensor, tensor: torch.Tensor) -> None:
    assert (decoded.dtype, decoded.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(words_of(decoded), words_of(tensor))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_word(dtype: str) -> None:
    own = DTYPES[dtype]
    words = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16) if own.itemsize == 2 else torch.arange(256).to(torch.uint8)
    tensor = words.view(own).reshape(-1, 64)
    frame = splitzip.compress(tensor, bases="channel")
    assert frame.dtypes == [dtype]
    decoded = splitzip.decompress(frame)
    assert isinstance(decoded, torch.Tensor)
    assert_same(decoded, tensor)
    assert bytes(frame) == bytes(splitzip.compress(words.numpy().reshape(-1, 64), dtype=own, bases="channel"))
    out = torch.empty_like(tensor)
    assert splitzip.decompress(frame, out=out) is out
    assert_same(out, tensor)


def test_strides() -> None:
    base = torch.randn(4, 6, 64).to(torch.bfloat16)
    for view in (base.transpose(0, 1), base[:, ::2], base[..., 3:9], base.expand(3, 4, 6, 64), base.permute(2, 1, 0)):
        assert_same(splitzip.decompress(splitzip.compress(view)), view.contiguous())
    out = torch.zeros(6, 4, 80, dtype=torch.bfloat16)[..., 8:72].transpose(0, 1)
    splitzip.decompress(splitzip.compress(base), out=out)
    assert_same(out.contiguous(), base)


def test_integers_and_other_floats() -> None:
    words = torch.randn(100).to(torch.bfloat16).view(torch.int16)
    assert_same(splitzip.decompress(splitzip.compress(words, dtype="bf16")), words)
    octets = torch.randn(100).to(torch.float8_e5m2).view(torch.uint8)
    frame = splitzip.compress(octets, dtype=torch.float8_e5m2)
    assert frame.dtypes == ["e5m2"]
    assert_same(splitzip.decompress(frame), octets)
    with pytest.raises(splitzip.DtypeError, match="float32 cannot be coded"):
        splitzip.compress(torch.zeros(4))
    with pytest.raises(splitzip.DtypeError):
        splitzip.compress(torch.zeros(4, dtype=torch.bfloat16), dtype="fp16")
    stored = torch.randn(7, 3)
    decoded = splitzip.decompress(splitzip.compress(stored, dtype="bytes"))
    assert torch.equal(decoded, stored)


def test_gradients_are_refused() -> None:
    with pytest.raises(splitzip.ArgumentError, match="cannot be exported.*detach"):
        splitzip.compress(torch.zeros(4, dtype=torch.bfloat16, requires_grad=True))


def test_frames_and_tensors_become_torch() -> None:
    tensor = torch.randn(9, 64).to(torch.bfloat16)
    frame = splitzip.compress(tensor)
    assert bytes(torch.from_dlpack(splitzip.Tensor(bytearray(b"abc"), "bytes", (3,))).numpy()) == b"abc"
    decoded = splitzip.decompress(frame, framework="splitzip")
    assert_same(decoded.torch(), tensor)
    assert_same(splitzip.decompress(bytes(frame), framework="torch"), tensor)
    memory = torch.empty(frame.max_nbytes, dtype=torch.uint8)
    held = splitzip.compress(tensor, out=memory)
    assert bytes(held) == bytes(frame) and held.memory is memory
    assert_same(splitzip.decompress(memory, framework="torch"), tensor)


def test_batches_of_both() -> None:
    tensors = {"a": torch.randn(64, 64).to(torch.bfloat16), "b": np.ones((3, 8), np.float16)}
    a, b = splitzip.decompress_batch(splitzip.compress_batch(tensors))
    assert_same(a, tensors["a"])
    assert isinstance(b, np.ndarray) and np.array_equal(b, tensors["b"])


def test_pages() -> None:
    layout = splitzip.KvLayout.vllm(layers=1, pages=6, page_tokens=16, heads=2, head_dim=64, dtype=torch_name(torch.bfloat16))
    pool = torch.randn(2, 6, 16, 2, 64).to(torch.bfloat16)
    for ids in (torch.tensor([4, 1]), torch.tensor([4, 1], dtype=torch.int32)):
        paged = layout.bind(ids, 30)
        frame = splitzip.compress_paged(paged, [pool])
        out = torch.zeros_like(pool)
        splitzip.decompress_paged(frame, paged, [out])
        assert_same(out[:, 4], pool[:, 4])
        assert_same(out[:, 1, :14], pool[:, 1, :14])
        assert not out[:, [0, 2, 3, 5]].any()


def torch_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
