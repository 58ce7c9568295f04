"""Requests in pages of a CUDA device. As ``test_cuda.py``: ``python test_cuda_paged.py`` runs everything, and fails where there is no GPU."""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import splitzip
from splitzip import KvLayout, RowMap
from test_cuda import OnlyInterface, main, raises, torch

LAYERS, TOKENS, HEADS, DIM = 3, 301, 4, 128
SIZES: dict[str, Any] = {"layers": LAYERS, "heads": HEADS, "head_dim": DIM}


def layouts(dtype: str) -> dict[str, KvLayout]:
    sizes = {**SIZES, "dtype": dtype, "pages": 40, "page_tokens": 16}
    slots = {**SIZES, "dtype": dtype, "pages": 400, "page_tokens": 1}
    made = {
        "vllm": KvLayout.vllm(**sizes),
        "sglang": KvLayout.sglang(**slots),
        "flash_infer hnd": KvLayout.flash_infer(**sizes, order="hnd"),
        "lmcache": KvLayout.lmcache(**{**slots, "pages": 2, "page_tokens": TOKENS}),
    }
    return made | {f"vllm_fused {order}": KvLayout.vllm_fused(**sizes, order=order) for order in ("lbhnc", "blnhc", "bhlnc")}


def rows() -> dict[str, KvLayout]:
    sizes: dict[str, Any] = {"layers": LAYERS, "pages": 40, "page_tokens": 16}
    return {
        "mla": KvLayout.mla(**sizes, dtype="bf16"),
        "fp8_ds_mla": KvLayout.rows(**sizes, row=RowMap.fp8_ds_mla()),
    }


def ids_of(layout: KvLayout, tokens: int = TOKENS, seed: int = 0) -> Any:
    """Pages in any order, on the host."""
    place = layout.tensors[0]
    pages = torch.randperm(place["pages"], generator=torch.Generator().manual_seed(seed))
    return pages[: -(-tokens // place["page_tokens"])].to(torch.int32)


def pools_of(layout: KvLayout, seed: int = 0) -> list[Any]:
    """Pools of bf16 numbers, which are floats of some kind to every dtype."""
    generator = torch.Generator().manual_seed(seed)
    pools = [torch.randn(-(-size // 2), generator=generator).to(torch.bfloat16) for size in layout.pool_bytes]
    return [pool.view(torch.uint8)[:size].to("cuda:0") for pool, size in zip(pools, layout.pool_bytes)]


def marked(layout: KvLayout) -> list[Any]:
    return [torch.full((size,), 0x5A, dtype=torch.uint8, device="cuda:0") for size in layout.pool_bytes]


def hosts(pools: list[Any]) -> list[Any]:
    return [pool.cpu() for pool in pools]


def assert_pools(pools: list[Any], expected: list[Any]) -> None:
    """All bytes: those that nobody may touch as well."""
    for number, (pool, other) in enumerate(zip(pools, expected)):
        assert torch.equal(pool.cpu(), other.cpu()), f"pool {number}"


def check_round_trip(source: KvLayout, target: KvLayout, **options: Any) -> None:
    """The frame is that of the host, and decodes to what the host decodes."""
    pools, paged, to = pools_of(source), source.bind(ids_of(source), TOKENS), target.bind(ids_of(target, seed=1), TOKENS)
    frame = splitzip.compress_paged(paged, pools, **options)
    assert frame.device == "cuda:0"
    host = splitzip.compress_paged(paged, hosts(pools), **options)
    assert bytes(frame) == bytes(host), options
    expected, decoded = hosts(marked(target)), marked(target)
    splitzip.decompress_paged(host, to, expected)
    splitzip.decompress_paged(frame, to, decoded)
    assert_pools(decoded, expected)
    # Frames of the host, and some tokens of some tensors.
    sent = torch.frombuffer(bytearray(bytes(host)), dtype=torch.uint8).to("cuda:0")
    names = paged.names[1:3]
    some, expected, decoded = to.slice(40, 200).select(names), hosts(marked(target)), marked(target)
    splitzip.decompress_paged(host, some, expected, tokens=(7, 167))
    splitzip.decompress_paged(sent, some, decoded, tokens=(7, 167))
    assert_pools(decoded, expected)


def test_every_layout() -> None:
    made = layouts("bf16")
    for layout in made.values():
        for bases in ("chunk", "channel"):
            check_round_trip(layout, made["sglang"], bases=bases, checksums="none")
            check_round_trip(made["sglang"], layout, bases=bases)


def test_every_member() -> None:
    for dtype in ("bf16", "fp16", "e4m3", "e5m2"):
        made = layouts(dtype)
        for scheme in ("w4", "w3", "w2x3", "w2x2x3"):
            if (dtype, scheme) == ("e4m3", "w4"):
                continue
            for checksums in ("none", "tensor", "both"):
                check_round_trip(made["vllm"], made["vllm_fused lbhnc"], scheme=scheme, checksums=checksums)


def test_rows_of_parts() -> None:
    for layout in rows().values():
        for checksums in ("none", "tensor"):
            check_round_trip(layout, layout, checksums=checksums)


def test_codebooks_and_arrival() -> None:
    layout = layouts("bf16")["vllm"]
    pools, paged = pools_of(layout), layout.bind(ids_of(layout), TOKENS)
    codebook = splitzip.calibrate(pools[0], dtype="bf16")
    check_round_trip(layout, layout, scheme="w4", codebook=codebook, checksums="none")
    frame, decoded, expected = splitzip.compress_paged(paged, pools, arrival=True, checksums="none"), marked(layout), marked(layout)
    splitzip.decompress_paged(frame, paged, decoded)
    splitzip.decompress_paged(splitzip.compress_paged(paged, pools), paged, expected)
    assert_pools(decoded, expected)


def test_page_ids_of_a_device() -> None:
    """Of both kinds, also of __cuda_array_interface__; a codec takes other pages when the numbers have changed."""
    made = layouts("bf16")
    source, target = made["vllm_fused lbhnc"], made["sglang"]
    pools = pools_of(source)
    for kind, checksums in ((torch.int32, "none"), (torch.int64, "tensor")):
        ids, slots = ids_of(source).to("cuda:0", kind), ids_of(target).to("cuda:0", kind)
        bound, to = source.bind(ids, TOKENS), target.bind(slots, TOKENS)
        host = splitzip.compress_paged(source.bind(ids.cpu(), TOKENS), hosts(pools), checksums=checksums)
        frame = splitzip.compress_paged(bound, pools, checksums=checksums)
        assert bytes(frame) == bytes(host)
        sliced = splitzip.compress_paged(bound.slice(5, 90), pools, checksums=checksums)
        assert bytes(sliced) == bytes(splitzip.compress_paged(source.bind(ids.cpu(), TOKENS).slice(5, 90), hosts(pools), checksums=checksums))
        encoder = splitzip.PagedCodec(bound, pools, direction="encode", checksums=checksums)
        decoded = marked(target)
        decoder = splitzip.PagedCodec(to, decoded, direction="decode", checksums=checksums)
        for seed in range(3):
            ids.copy_(ids_of(source, seed=seed))
            slots.copy_(ids_of(target, seed=seed + 10))
            for pool in decoded:
                pool.fill_(0x5A)
            frame = encoder.encode()
            host = splitzip.compress_paged(source.bind(ids.cpu(), TOKENS), hosts(pools), checksums=checksums)
            assert bytes(frame) == bytes(host), seed
            decoder.decode(frame, check=seed == 0)
            expected = hosts(marked(target))
            splitzip.decompress_paged(host, target.bind(slots.cpu(), TOKENS), expected)
            assert_pools(decoded, expected)
        decoder.check()
    torch.cuda.synchronize()
    seen = source.bind(OnlyInterface(ids_of(source).cuda(), "<i4"), TOKENS)
    assert seen.tokens == TOKENS and splitzip.compress_paged(seen, pools, checksums=checksums).nbytes > 0


def test_bad_page_ids_of_a_device() -> None:
    """A frame of unknown pages is none; decoding says so, and touches no other memory."""
    layout = layouts("bf16")["vllm"]
    ids = ids_of(layout)
    pools = pools_of(layout)
    frame = splitzip.compress_paged(layout.bind(ids, TOKENS), pools, checksums="none")
    for bad in (40, -1, 1 << 30):
        wrong = ids.clone()
        wrong[3] = bad
        with raises(splitzip.PagedError, "the pool has pages 0 to 39"):
            splitzip.compress_paged(layout.bind(wrong, TOKENS), pools)
        bound = layout.bind(wrong.cuda(), TOKENS)
        unsealed = splitzip.compress_paged(bound, pools, checksums="none")
        with raises(splitzip.CorruptError, "does not match its check"):
            _ = unsealed.nbytes
        decoded = marked(layout)
        with raises(splitzip.PagedError, "is none of its pool"):
            splitzip.decompress_paged(frame, bound, decoded)
        # What was written are pages of the request.
        for pool in decoded:
            pages = pool.view(2, 40, -1)
            for page in set(range(40)) - set(wrong.tolist()):
                assert bool((pages[:, page] == 0x5A).all()), page
        codec = splitzip.PagedCodec(bound, decoded)
        codec.decode(frame)
        with raises(splitzip.CorruptError, "is damaged"):
            codec.check()
        codec.check()
    with raises(splitzip.PagedError, "more than once"):
        splitzip.decompress_paged(frame, layout.bind(ids.index_fill(0, torch.tensor([1]), int(ids[0])), TOKENS), pools)


def test_side_streams() -> None:
    """What runs before on the stream is seen, with no waiting in between."""
    layout = layouts("bf16")["sglang"]
    expected, ids = pools_of(layout), ids_of(layout)
    host = splitzip.compress_paged(layout.bind(ids, TOKENS), hosts(expected), checksums="none")
    pools, numbers, out = marked(layout), torch.zeros_like(ids, device="cuda:0"), marked(layout)
    encoder = splitzip.PagedCodec(layout.bind(numbers, TOKENS), pools, direction="encode")
    decoder = splitzip.PagedCodec(layout.bind(numbers, TOKENS), out, direction="decode")
    on_device = ids.cuda()
    torch.cuda.synchronize()
    for stream in [torch.cuda.Stream() for _ in range(3)] * 2:
        for pool in (*pools, numbers, *out):
            pool.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            numbers.copy_(on_device)
            for pool, right in zip(pools, expected):
                pool.copy_(right)
            frame = encoder.encode()
            decoder.decode(frame)
            assert bytes(frame) == bytes(host)
        stream.synchronize()
        for pool, right in zip(out, expected):
            for slot in ids.tolist():
                assert torch.equal(pool.view(400, -1)[slot], right.view(400, -1)[slot])
    decoder.check()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        frame = splitzip.compress_paged(layout.bind(numbers, TOKENS), pools, checksums="none")
    assert bytes(frame) == bytes(host)
    assert bytes(splitzip.compress_paged(layout.bind(ids, TOKENS), pools, checksums="none", stream=stream)) == bytes(host)


def test_it_does_not_wait() -> None:
    layout = layouts("bf16")["vllm"]
    pools = pools_of(layout)
    codec = splitzip.PagedCodec(layout.bind(ids_of(layout), TOKENS), pools)
    memory = codec.empty_frame()
    codec.decode(codec.encode(out=memory))
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)
    queued = torch.cuda.Event()
    queued.record()
    start = time.perf_counter()
    frame = codec.encode(out=memory)
    codec.decode(frame)
    spent = time.perf_counter() - start
    assert not queued.query(), "the device was done before the calls: nothing was seen"
    assert spent < 0.05, f"the calls took {spent} s while the device was busy"
    assert codec._native.pending == 2
    assert frame.nbytes > 0 and codec._native.pending == 0
    codec.check()


def test_what_is_worked_on_is_held() -> None:
    """By a call of its own, until the device has done it; then it is given back."""
    layout = layouts("bf16")["vllm"]
    pools = pools_of(layout)
    splitzip.compress_paged(layout.bind(ids_of(layout), TOKENS), pools, checksums="none")
    codec = splitzip.PagedCodec(layout.bind(ids_of(layout), TOKENS), pools, direction="encode")
    expected = bytes(codec.encode())
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    frame = codec.encode()
    # Waits, since the codec ends before its work.
    del codec, pools
    gc.collect()
    filled = [torch.full((1 << 22,), 0xFF, dtype=torch.uint8, device="cuda:0") for _ in range(8)]
    assert bytes(frame) == expected and len(filled) == 8
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        pools = pools_of(layout)
        splitzip.compress_paged(layout.bind(ids_of(layout), TOKENS), pools, checksums="none")
    torch.cuda.synchronize()
    splitzip.compress_paged(layout.bind(ids_of(layout), TOKENS), pools, checksums="none")
    gc.collect()
    assert torch.cuda.memory_allocated() - before < 16 * sum(layout.pool_bytes), "what earlier calls worked on is still there"
    assert len(splitzip._paged._running._natives) == 1


def test_graphs() -> None:
    """Captured once, replayed over other elements in other pages."""
    made = layouts("bf16")
    source, target = made["vllm_fused blnhc"], made["sglang"]
    pools, decoded = pools_of(source), marked(target)
    ids, slots = ids_of(source).cuda(), ids_of(target).cuda()
    encoder = splitzip.PagedCodec(source.bind(ids, TOKENS), pools, direction="encode")
    decoder = splitzip.PagedCodec(target.bind(slots, TOKENS), decoded, direction="decode")
    memory = encoder.empty_frame()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.decode(encoder.encode(out=memory))
    for seed in range(4):
        for pool, other in zip(pools, pools_of(source, seed=seed)):
            pool.copy_(other)
        for pool in decoded:
            pool.fill_(0x5A)
        ids.copy_(ids_of(source, seed=seed))
        slots.copy_(ids_of(target, seed=seed + 20))
        graph.replay()
        torch.cuda.synchronize()
        host = splitzip.compress_paged(source.bind(ids.cpu(), TOKENS), hosts(pools), checksums="none")
        assert bytes(splitzip.Frame(memory)) == bytes(host), seed
        expected = hosts(marked(target))
        splitzip.decompress_paged(host, target.bind(slots.cpu(), TOKENS), expected)
        assert_pools(decoded, expected)
    decoder.check()
    failed = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(failed):
            with raises(splitzip.ArgumentError, "make a PagedCodec before the capture"):
                splitzip.compress_paged(source.bind(ids, TOKENS), pools, checksums="none", out=memory)
            memory.zero_()
    finally:
        torch.cuda.synchronize()


def test_damaged_frames() -> None:
    layout = layouts("bf16")["vllm"]
    paged, pools = layout.bind(ids_of(layout), TOKENS), pools_of(layout)
    for checksums in ("tensor", "chunk"):
        frame = splitzip.compress_paged(paged, pools, checksums=checksums)
        memory, size = frame.memory, frame.nbytes
        expected, decoded = marked(layout), marked(layout)
        splitzip.decompress_paged(frame, paged, expected)
        unseen = 0
        places = torch.randint(0, size, (60,), generator=torch.Generator().manual_seed(2)).tolist()
        for at in [9, 70, 200, *places]:
            damaged = memory.clone()
            damaged[at] ^= 1 << (at % 8)
            try:
                splitzip.decompress_paged(damaged, paged, decoded)
            except splitzip.FrameError:
                continue
            # A byte between the parts of a frame, which nobody reads.
            unseen += 1
            assert_pools(decoded, expected)
        assert unseen < 6, f"{unseen} of {len(places)} changes were not seen"
        with raises(splitzip.TruncatedError, "needs"):
            splitzip.decompress_paged(memory[: size // 2].clone(), paged, decoded)


def test_what_is_refused() -> None:
    layout = layouts("bf16")["vllm"]
    paged, pools = layout.bind(ids_of(layout), TOKENS), pools_of(layout)
    frame = splitzip.compress_paged(paged, pools)
    on_device = layout.bind(ids_of(layout).cuda(), TOKENS)
    # Channel bases of a group of rows that is not whole take a detour, which needs them on the host.
    with raises(splitzip.UnsupportedError, "page numbers in device memory"):
        splitzip.compress_paged(on_device, pools, bases="channel")
    with raises(splitzip.PagedError, "device memory"):
        splitzip.compress_paged(on_device, hosts(pools))
    with raises(splitzip.UnsupportedError, "packed"):
        splitzip.compress_paged(paged, pools, packed=True)
    with raises(splitzip.ArgumentError, "are on one device"):
        splitzip.compress_paged(paged, [pools[0], *hosts(pools[1:])])
    with raises(splitzip.ArgumentError, "the pools are in memory of the host"):
        splitzip.decompress_paged(frame, paged, hosts(pools))
    with raises(splitzip.ArgumentError, "the pools are in cuda:0"):
        splitzip.decompress_paged(frame.cpu(), paged, pools)
    with raises(splitzip.ArgumentError, "not in one piece"):
        splitzip.compress_paged(paged, [pools[0].view(-1, 2)[:, :1], *pools[1:]])
    with raises(splitzip.BufferSizeError, "bytes, but needs"):
        splitzip.compress_paged(paged, pools, out=torch.empty(1000, dtype=torch.uint8, device="cuda:0"))
    with raises(splitzip.PagedError, "which has"):
        splitzip.compress_paged(paged, [pools[0][1:], *pools[1:]])
    with raises(splitzip.ArgumentError, "shares memory with an input"):
        splitzip.decompress_paged(splitzip.Frame(frame.memory), paged, [frame.memory, *pools[1:]])
    with raises(splitzip.ArgumentError, "give a contiguous tensor"):
        layout.bind(torch.zeros(38, dtype=torch.int32, device="cuda:0")[::2], TOKENS)
    with raises(splitzip.PagedError, "layout id"):
        splitzip.decompress_paged(splitzip.compress_paged(paged.salted(b"another"), pools), paged, pools)
    with raises(splitzip.UnsupportedError, "for encoding only"):
        splitzip.PagedCodec(paged, pools, direction="encode").decode(frame)


if __name__ == "__main__":
    sys.exit(main(globals()))
