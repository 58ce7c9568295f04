"""Pages of serving engines: any layout in, any layout out, partial, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import splitzip
from conftest import NUMPY, normal, words_of
from splitzip import KvLayout, RowMap

LAYERS, TOKENS, HEADS, DIM = 2, 37, 2, 64
SIZES = {"layers": LAYERS, "heads": HEADS, "head_dim": DIM, "dtype": "bf16"}


def layouts() -> dict[str, KvLayout]:
    paged = {**SIZES, "pages": 8, "page_tokens": 16}
    made = {
        "vllm": KvLayout.vllm(**paged),
        "vllm_blocks_first": KvLayout.vllm_blocks_first(**paged),
        "sglang": KvLayout.sglang(**{**paged, "pages": 50, "page_tokens": 1}),
        "lmcache": KvLayout.lmcache(**{**paged, "pages": 1, "page_tokens": TOKENS}),
    }
    for order in ("lbhnc", "lbnhc", "lhbnc", "blhnc", "blnhc", "bhlnc"):
        made[f"vllm_fused {order}"] = KvLayout.vllm_fused(**paged, order=order)
    for order in ("nhd", "hnd"):
        made[f"flash_infer {order}"] = KvLayout.flash_infer(**paged, order=order)
        made[f"flash_infer_pair {order}"] = KvLayout.flash_infer_pair(**paged, order=order)
    return made


def ids_of(layout: KvLayout) -> list[int]:
    tensor = layout.tensors[0]
    count = -(-TOKENS // tensor["page_tokens"])
    return [int(page) for page in np.random.default_rng(3).permutation(tensor["pages"])[:count]]


def place(layout: KvLayout, pools: list[np.ndarray], ids: list[int], tensors: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Writes tensors into pages element by element, or reads them: the formula of docs/layouts.md."""
    found = {}
    for of in layout.tensors:
        size = of["dim"] * NUMPY[of["dtype"]].itemsize
        tensor = np.zeros((TOKENS, of["heads"], size), np.uint8) if tensors is None else tensors[of["name"]]
        for token in range(TOKENS):
            page = ids[token // of["page_tokens"]]
            for head in range(of["heads"]):
                at = of["base"] + page * of["page_stride"] + token % of["page_tokens"] * of["token_stride"] + head * of["head_stride"]
                if tensors is None:
                    tensor[token, head] = pools[of["pool"]][at : at + size]
                else:
                    pools[of["pool"]][at : at + size] = tensor[token, head]
        found[of["name"]] = tensor
    return found


def elements() -> dict[str, np.ndarray]:
    names = [f"layers.{layer}.{kv}" for layer in range(LAYERS) for kv in "kv"]
    return {name: normal("bf16", TOKENS, HEADS, DIM, seed=seed) for seed, name in enumerate(names)}


def test_parts_are_verified_by_checksums_of_chunks() -> None:
    """Whole tensors by those of tensors as well."""
    layout, tensors = layouts()["sglang"], elements()
    ids = ids_of(layout)
    pools = [np.full(size, 0xAA, np.uint8) for size in layout.pool_bytes]
    place(layout, pools, ids, octets(tensors))
    for checksums, refused in (("tensor", False), ("chunk", True), ("both", True), ("none", False)):
        frame = bytes(splitzip.compress_paged(layout.bind(ids, TOKENS), pools, scheme="stored", checksums=checksums))
        at = frame.index(words_of(tensors["layers.0.k"]).tobytes()[:64]) + 5
        damaged = bytearray(frame)
        damaged[at] ^= 1
        whole = [np.zeros(size, np.uint8) for size in layout.pool_bytes]
        if checksums == "none":
            splitzip.decompress_paged(damaged, layout.bind(ids, TOKENS), whole)
        else:
            with pytest.raises(splitzip.ChecksumError):
                splitzip.decompress_paged(damaged, layout.bind(ids, TOKENS), whole)
        part = layout.bind(ids[:5], 5)
        if refused:
            with pytest.raises(splitzip.ChecksumError):
                splitzip.decompress_paged(damaged, part, whole, tokens=(0, 5))
            with pytest.raises(splitzip.ChecksumError):
                splitzip.decompress_range(damaged, "layers.0.k", 0, 100)
        else:
            splitzip.decompress_paged(damaged, part, whole, tokens=(0, 5))
            assert len(splitzip.decompress_range(damaged, "layers.0.k", 0, 100).data) > 0


def octets(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: words_of(tensor).view(np.uint8) for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", layouts())
def test_every_layout(name: str) -> None:
    layout, tensors = layouts()[name], elements()
    ids = ids_of(layout)
    pools = [np.full(size, 0xAA, np.uint8) for size in layout.pool_bytes]
    place(layout, pools, ids, octets(tensors))
    frame = splitzip.compress_paged(layout.bind(ids, TOKENS), pools, bases="channel")
    plain = splitzip.compress_batch(tensors, bases="channel", layout_id=frame.layout_id)
    assert bytes(frame) == bytes(plain)
    # Into slots of SGLang's pools, and back.
    slots = layouts()["sglang"]
    numbers = np.array(ids_of(slots), np.int32)
    other = [np.full(size, 0x55, np.uint8) for size in slots.pool_bytes]
    splitzip.decompress_paged(frame, slots.bind(numbers, TOKENS), other)
    for key, tensor in place(slots, other, list(numbers), None).items():
        assert np.array_equal(tensor, octets(tensors)[key])
    again = splitzip.compress_paged(slots.bind(numbers.astype(np.int64), TOKENS), other, bases="channel")
    restored = [np.full(size, 0xAA, np.uint8) for size in layout.pool_bytes]
    splitzip.decompress_paged(again, layout.bind(ids, TOKENS), restored)
    for restored_pool, pool in zip(restored, pools):
        assert np.array_equal(restored_pool, pool)


def test_some_tokens_of_some_tensors() -> None:
    layout, tensors = layouts()["vllm"], elements()
    ids = ids_of(layout)
    pools = [np.zeros(size, np.uint8) for size in layout.pool_bytes]
    place(layout, pools, ids, octets(tensors))
    paged = layout.bind(ids, last_page_tokens=TOKENS - 32)
    assert (paged.tokens, paged.names) == (TOKENS, list(tensors))
    frame = splitzip.compress_paged(paged, pools)
    out = [np.zeros(size, np.uint8) for size in layout.pool_bytes]
    some = paged.slice(10, 25).select(["layers.1.k"])
    splitzip.decompress_paged(frame, some, out, tokens=(10, 25))
    found = place(layout, out, ids, None)
    expected = octets(tensors)["layers.1.k"]
    assert np.array_equal(found["layers.1.k"][10:25], expected[10:25])
    assert not found["layers.1.k"][:10].any() and not found["layers.1.k"][25:].any()
    assert not any(found[name].any() for name in ("layers.0.k", "layers.0.v", "layers.1.v"))
    part = splitzip.compress_paged(paged.slice(10, 25), pools)
    assert part.shapes == [(15, HEADS, DIM)] * 4


def test_rows_of_parts() -> None:
    row = RowMap.fp8_ds_mla()
    assert row.row_bytes == 656 and [field[0] for field in row.fields] == ["latent", "scales", "rope"]
    layout = KvLayout.rows(layers=1, pages=4, page_tokens=16, row=row)
    pool = np.random.default_rng(0).integers(0, 256, layout.pool_bytes[0], np.uint8)
    paged = layout.bind([2, 0], 20)
    frame = splitzip.compress_paged(paged, [pool], bases="channel")
    assert frame.dtypes == ["e4m3", "bytes", "bf16"]
    out = np.zeros_like(pool)
    splitzip.decompress_paged(frame, paged, [out])
    rows, decoded = pool.reshape(4, 16, 656), out.reshape(4, 16, 656)
    assert np.array_equal(decoded[2], rows[2]) and np.array_equal(decoded[0, :4], rows[0, :4])
    assert not decoded[[1, 3]].any() and not decoded[0, 4:].any()
    mla = KvLayout.mla(layers=1, pages=4, page_tokens=16, dtype="bf16")
    chunk = KvLayout.lmcache_mla(layers=1, tokens=20, row=RowMap.mla("bf16"), row_bytes=1280)
    pool = np.random.default_rng(0).integers(0, 256, mla.pool_bytes[0], np.uint8)
    frame = splitzip.compress_paged(mla.bind([1, 2], 20), [pool])
    out = np.zeros(chunk.pool_bytes[0], np.uint8)
    splitzip.decompress_paged(frame, chunk.bind_consecutive(0, 20), [out])
    assert np.array_equal(np.resize(out, (20, 1280))[:19, :1152], pool.reshape(64, 1152)[16:35])


def test_layouts_of_ones_own() -> None:
    vllm = layouts()["vllm"]
    assert KvLayout(vllm.tensors) == vllm
    with pytest.raises(splitzip.ArgumentError, match='has no "stride"'):
        KvLayout([{**vllm.tensors[0], "stride": 1}])
    with pytest.raises(splitzip.ArgumentError, match="needs \"dim\""):
        KvLayout([{key: value for key, value in vllm.tensors[0].items() if key != "dim"}])
    with pytest.raises(splitzip.PagedError, match="would share bytes"):
        KvLayout([{**vllm.tensors[0], "head_stride": 1}])


def test_layout_ids() -> None:
    layout = layouts()["vllm"]
    paged = layout.bind([0, 1, 2], TOKENS)
    assert paged.layout_id == layouts()["sglang"].bind(list(range(TOKENS)), TOKENS).layout_id
    salted = paged.salted(b"another model")
    assert salted.layout_id != paged.layout_id
    pools = [np.zeros(size, np.uint8) for size in layout.pool_bytes]
    with pytest.raises(splitzip.PagedError, match="layout id"):
        splitzip.decompress_paged(splitzip.compress_paged(salted, pools), paged, pools)
    joined = paged.join(KvLayout([{**of, "name": f"draft.{of['name']}", "pool": of["pool"] + 2} for of in layout.tensors]).bind([5], 9))
    assert len(joined.names) == 8
    assert splitzip.compress_paged(joined, pools * 2).shapes[-1] == (9, HEADS, DIM)


def test_what_is_refused() -> None:
    layout = layouts()["vllm"]
    pools = [np.zeros(size, np.uint8) for size in layout.pool_bytes]
    with pytest.raises(splitzip.PagedError, match="take 3 pages, but the table has 2"):
        layout.bind([0, 1], TOKENS)
    with pytest.raises(splitzip.ArgumentError, match="either tokens="):
        layout.bind([0, 1, 2])
    with pytest.raises(splitzip.DtypeError, match="convert them to int32 or int64"):
        layout.bind(np.array([0.0, 1.0, 2.0]), TOKENS)
    with pytest.raises(splitzip.ArgumentError, match="one dimension"):
        layout.bind(np.array([[0, 1, 2]]), TOKENS)
    with pytest.raises(splitzip.PagedError, match="the pool has pages 0 to 7"):
        splitzip.compress_paged(layout.bind([0, 1, 8], TOKENS), pools)
    with pytest.raises(splitzip.PagedError, match="the pool has pages 0 to 7"):
        splitzip.compress_paged(layout.bind([0, 1, -1], TOKENS), pools)
    paged = layout.bind([0, 1, 2], TOKENS)
    with pytest.raises(splitzip.PagedError, match="but 1 pools were given"):
        splitzip.compress_paged(paged, pools[:1])
    with pytest.raises(splitzip.PagedError, match="which has"):
        splitzip.compress_paged(paged, [pools[0], pools[1][1:]])
    frame = splitzip.compress_paged(paged, pools)
    with pytest.raises(splitzip.PagedError, match="page 1 is more than once"):
        splitzip.decompress_paged(frame, layout.bind([0, 1, 1], TOKENS), pools)
    with pytest.raises(splitzip.PagedError, match="place for 20 tokens"):
        splitzip.decompress_paged(frame, layout.bind([0, 1], 20), pools)
    with pytest.raises(splitzip.ArgumentError, match="two outputs share memory"):
        splitzip.decompress_paged(frame, paged, [pools[0], pools[0]])
    with pytest.raises(splitzip.ArgumentError, match="not in one piece"):
        shaped = pools[0].view(np.uint16).reshape(2, 8, 16, 2, 64).transpose(0, 1, 3, 2, 4)
        splitzip.compress_paged(paged, [shaped, pools[1]])
    with pytest.raises(splitzip.ArgumentError, match='there is no order "xyz"'):
        KvLayout.vllm_fused(**SIZES, pages=8, page_tokens=16, order="xyz")
    with pytest.raises(splitzip.PagedError, match="tensors named \"layers.7.k\""):
        paged.select(["layers.7.k"])


def test_page_ids_of_any_stride_and_kind() -> None:
    layout, wide = layouts()["vllm"], np.array([3, 9, 1, 9, 5, 9])
    pools = [np.random.default_rng(0).integers(0, 256, size, np.uint8) for size in layout.pool_bytes]
    expected = bytes(splitzip.compress_paged(layout.bind([3, 1, 5], TOKENS), pools))
    for ids in (wide[::2], wide[::2].astype(np.int32), (3, 1, 5), memoryview(wide[::2])):
        assert bytes(splitzip.compress_paged(layout.bind(ids, TOKENS), pools)) == expected


def test_codecs_of_one_request() -> None:
    layout, slots, tensors = layouts()["vllm"], layouts()["sglang"], elements()
    ids, numbers = ids_of(layout), ids_of(layouts()["sglang"])
    pools = [np.zeros(size, np.uint8) for size in layout.pool_bytes]
    place(layout, pools, ids, octets(tensors))
    encoder = splitzip.PagedCodec(layout.bind(ids, TOKENS), pools, scheme="w3", bases="channel", direction="encode")
    out = encoder.empty_frame()
    frame = encoder.encode(out=out)
    assert frame.memory is out and encoder.device == "cpu" and encoder.max_nbytes == len(out) > encoder.dense_nbytes > 0
    assert bytes(frame) == bytes(splitzip.compress_paged(layout.bind(ids, TOKENS), pools, scheme="w3", bases="channel", checksums="none"))
    decoded = [np.full(size, 0x55, np.uint8) for size in slots.pool_bytes]
    decoder = splitzip.PagedCodec(slots.bind(numbers, TOKENS), decoded, direction="decode")
    for given in (frame, bytes(frame)):
        decoder.decode(given)
        decoder.check()
        for name, tensor in place(slots, decoded, numbers, None).items():
            assert np.array_equal(tensor, octets(tensors)[name])
            tensor[:] = 0
    pools[0][:] = 0
    assert encoder.encode().nbytes < frame.nbytes
    with pytest.raises(splitzip.UnsupportedError, match="for encoding only"):
        encoder.decode(frame)
    with pytest.raises(splitzip.UnsupportedError, match="for decoding only"):
        decoder.encode()
    with pytest.raises(splitzip.ArgumentError, match="one of encode, decode, both"):
        splitzip.PagedCodec(layout.bind(ids, TOKENS), pools, direction="either")  # type: ignore[arg-type]
    with pytest.raises(splitzip.ArgumentError, match="cannot be auto"):
        splitzip.PagedCodec(layout.bind(ids, TOKENS), pools, scheme="auto")
    with pytest.raises(splitzip.ArgumentError, match="leave stream out"):
        splitzip.compress_paged(layout.bind(ids, TOKENS), pools, stream=0)
    with pytest.raises(splitzip.PagedError, match="layout id"):
        decoder.decode(splitzip.compress_paged(layout.bind(ids, TOKENS).salted(b"x"), pools))
