"""Objects of caches as frames: whatever they hold comes back, and nothing is taken for what it is not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import splitzip
from splitzip._objects import ObjectCoder, Region, layout_id

REGIONS = {
    "pair": [Region("bf16", (2, 3, 40, 1024))],
    "heads": [Region("bf16", (2, 3, 40, 128))],
    "one layer": [Region("fp16", (2, 40, 128))],
    "rows": [Region("bf16", (40, 2, 256))],
    "mla": [Region("bf16", (1, 3, 40, 576))],
    "e4m3": [Region("e4m3", (2, 3, 40, 128))],
    "e5m2": [Region("e5m2", (2, 3, 41, 64))],
    "bytes": [Region("bytes", (2, 3, 40, 128))],
    "two groups": [Region("bf16", (2, 2, 33, 128)), Region("bytes", (33, 7)), Region("e4m3", (1, 5, 64))],
    "odd": [Region("bytes", (3,)), Region("bf16", (2, 1, 1, 24)), Region("bf16", (5,))],
    "empty": [Region("bf16", (2, 3, 0, 128)), Region("bytes", (0,))],
    "none": [],
    "flat": [Region("bf16", (10_000,))],
}
OPTIONS = [{}, {"bases": "chunk"}, {"head_dim": 64}, {"scheme": "w3", "checksums": "both"}, {"scheme": "stored"}, {"scheme": "w2x2x3", "threads": 1}]


def octets(regions: list[Region], seed: int = 0) -> np.ndarray:
    """Floats that look like KV in the regions of floats, noise in the others."""
    rng, pieces = np.random.default_rng(seed), []
    for region in regions:
        if region.dtype == "bytes":
            pieces.append(rng.integers(0, 256, region.nbytes, np.uint8))
            continue
        kind = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[region.dtype]
        pieces.append(rng.normal(size=region.shape).astype(np.float32).astype(kind).reshape(-1).view(np.uint8))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_round_trip(name: str, options: dict) -> None:
    regions, coder = REGIONS[name], ObjectCoder(**options)
    for src in (octets(regions), np.random.default_rng(1).integers(0, 256, sum(region.nbytes for region in regions), np.uint8)):
        bound = coder.bound(regions)
        out = bytearray(bound)
        frame = coder.encode(regions, src, b"key", out)
        assert frame.memory is out and frame.nbytes <= bound
        dst = np.full_like(src, 0xAA)
        coder.decode(regions, out, dst, b"key")
        assert np.array_equal(dst, src)
        # Whatever the options are now, a frame says how it was cut.
        for other in OPTIONS:
            assert frame.nbytes <= ObjectCoder(**other).bound(regions)
            dst[:] = 0xAA
            ObjectCoder(**other).decode(regions, frame.data, dst, b"key")
            assert np.array_equal(dst, src)


def test_bounds_are_tight_and_hold() -> None:
    regions = [Region("bf16", (2, 16, 256, 1024))]
    for options in ({}, {"head_dim": 128}):
        assert ObjectCoder(**options).bound(regions) < 1.004 * regions[0].nbytes
    # The worst that elements can be: every exponent as often.
    small = [Region("bf16", (2, 1, 64, 256))]
    noise = np.random.default_rng(0).integers(0, 256, small[0].nbytes, np.uint8)
    coder = ObjectCoder(head_dim=128)
    size = coder.encode(small, noise).nbytes
    assert small[0].nbytes < size <= coder.bound(small)
    # So it is stored, and fits into memory for any other options.
    assert all(size <= ObjectCoder(**options).bound(small) for options in (*OPTIONS, {"head_dim": 8}))
    with pytest.raises(splitzip.BufferSizeError, match="bytes, but needs"):
        coder.encode(small, noise, b"", bytearray(coder.bound(small) - 1))


def test_real_keys_and_values_are_coded_apart(fixture: dict[str, np.ndarray]) -> None:
    layers = len(fixture) // 2
    kv = np.stack([np.stack([fixture[f"layers.{layer}.{part}"] for layer in range(layers)]) for part in "kv"])
    heads, tokens, dim = kv.shape[2:]
    # [2, layers, tokens, heads * dim], as LMCache has it.
    chunk = np.ascontiguousarray(kv.transpose(0, 1, 3, 2, 4)).reshape(2, layers, tokens, heads * dim)
    regions, src = [Region("bf16", chunk.shape)], chunk.view(np.uint8).reshape(-1)
    ratios = {}
    for name, options in {"chunk": {"bases": "chunk"}, "row": {}, "heads": {"head_dim": dim}}.items():
        coder = ObjectCoder(**options)
        frame, dst = coder.encode(regions, src), np.zeros_like(src)
        coder.decode(regions, frame.data, dst)
        assert np.array_equal(dst, src)
        ratios[name] = src.nbytes / frame.nbytes
    assert ratios["chunk"] > 1.44 and min(ratios["row"], ratios["heads"]) > 1.458, ratios
    # Keys and values in one row, as in vLLM's fused cache: [heads, tokens, 2 * dim].
    fused = np.ascontiguousarray(np.concatenate([kv[0], kv[1]], axis=-1)).view(np.uint8).reshape(-1)
    flat = [Region("bf16", (fused.nbytes // 2,))]
    apart, mixed = ObjectCoder(head_dim=dim, fused=True).encode(flat, fused), ObjectCoder().encode(flat, fused)
    assert apart.nbytes < mixed.nbytes
    dst = np.zeros_like(fused)
    ObjectCoder().decode(flat, apart.data, dst)
    assert np.array_equal(dst, fused)


def test_other_objects_are_refused() -> None:
    regions, coder = REGIONS["heads"], ObjectCoder()
    src = octets(regions)
    frame, dst = bytes(coder.encode(regions, src, b"a")), np.zeros_like(src)
    for other_regions, key in (
        (regions, b"b"),
        (regions, b""),
        ([Region("bf16", (2, 3, 128, 40))], b"a"),
        ([Region("fp16", (2, 3, 40, 128))], b"a"),
        ([Region("bytes", (regions[0].nbytes,))], b"a"),
        ([*regions, Region("bytes", (0,))], b"a"),
    ):
        with pytest.raises(splitzip.FrameError, match="another object"):
            coder.decode(other_regions, frame, dst, key)
    assert not dst.any()
    with pytest.raises(splitzip.BufferSizeError, match="but needs"):
        coder.decode(regions, frame, dst[:-1], b"a")
    with pytest.raises(splitzip.BufferSizeError, match="but needs"):
        coder.encode(regions, src[:-1])
    # A frame with the right layout id, but made of something else.
    forged = splitzip.compress_batch({"0.heads.k": np.zeros((4, 8), np.uint16)}, dtype="bf16", layout_id=layout_id(regions, b"a"))
    with pytest.raises(splitzip.FrameError, match="do not use it"):
        coder.decode(regions, forged.data, dst, b"a")
    for names in (["x"], ["0.parts.0"], ["0.heads.k"], ["0.fused.k"], ["0.pair.k"], ["0.rows.k"], ["1.whole.all"]):
        forged = splitzip.compress_batch([np.zeros(0, np.uint16)], names=names, dtype="bf16", layout_id=layout_id(regions, b"a"))
        with pytest.raises(splitzip.FrameError, match="do not use it"):
            coder.decode(regions, forged.data, dst, b"a")


def test_damage_is_found() -> None:
    regions, coder = REGIONS["two groups"], ObjectCoder()
    src = octets(regions)
    frame, dst = bytes(coder.encode(regions, src, b"a")), np.zeros_like(src)
    rng, unseen = np.random.default_rng(5), 0
    for at in [*range(0, 300, 3), *rng.integers(300, len(frame), 300)]:
        damaged = bytearray(frame)
        damaged[at] ^= 1 << int(rng.integers(8))
        try:
            coder.decode(regions, damaged, dst, b"a")
        except splitzip.FrameError:
            continue
        # A byte between the parts of a frame, which nobody reads.
        assert np.array_equal(dst, src), at
        unseen += 1
    assert unseen < 20
    for length in (0, 7, 100, len(frame) // 2, len(frame) - 1):
        with pytest.raises(splitzip.FrameError):
            coder.decode(regions, frame[:length], dst, b"a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "w4"}, "there is no scheme 'w4' for objects; it must be one of stored, w3, w2x3, w2x2x3"),
        ({"scheme": "auto"}, "no scheme 'auto'"),
        ({"bases": "channel"}, "no bases 'channel'"),
        ({"checksums": "none"}, "no checksums 'none'"),
        ({"head_dim": 0}, "head_dim must be a number of at least 1"),
        ({"head_dim": "128"}, "head_dim must be a number"),
        ({"threads": -1}, "threads must be a number"),
        ({"parts": [512, 0]}, "parts must be numbers"),
        ({"parts": []}, "parts must be numbers"),
        ({"fused": True}, "say head_dim"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(splitzip.ArgumentError, match=message):
        ObjectCoder(**options)
