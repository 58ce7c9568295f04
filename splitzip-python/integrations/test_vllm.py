"""The tier of ``splitzip.vllm``, made by vLLM's own factory."""

from __future__ import annotations

import errno
import os
import pathlib
import time
import types
from typing import Any

import numpy as np
import pytest
import splitzip
import torch
from conftest import octets
from vllm.v1.kv_offload.base import LookupResult, Medium, OffloadKey, ReqContext, make_offload_key
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.base import JobResult, TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

REQUEST = ReqContext("request")
BLOCKS = 12


def key(number: int, group: int = 0) -> OffloadKey:
    return make_offload_key(b"%032d" % number, group)


def fused(kv: torch.Tensor) -> np.ndarray:
    """A primary tier with blocks of real keys and values: ``[layers, heads, 16 tokens, 2 * head_dim]`` each, as the fused layouts have them."""
    rows = torch.cat([kv[0], kv[1]], dim=-1)
    blocks = [octets(rows[:, :, 16 * number : 16 * (number + 1)]) for number in range(10)]
    primary = np.zeros((BLOCKS, len(blocks[0])), np.uint8)
    for number, block in enumerate(blocks):
        primary[number] = np.frombuffer(block, np.uint8)
    return primary


def make(where: pathlib.Path, primary: np.ndarray, spec: Any = None, **config: Any) -> Any:
    config = {"type": "SplitZipTier", "module_path": "splitzip.vllm", "folder": str(where), "dtype": "bf16", **config}
    return SecondaryTierFactory.create_secondary_tier(config, memoryview(primary), spec)


def spec(model: str = "org/model", rank: int = 0, tp_size: int = 2, agnostic: bool = False, layout: str = "LBHNC") -> Any:
    """As much of an offloading spec as a tier looks at: vLLM's own configuration."""
    parallel = OffloadingParallelConfig(
        rank=rank,
        world_size=tp_size,
        tp_size=tp_size,
        pp_size=1,
        pcp_size=1,
        dcp_size=1,
        data_parallel_index=0,
        data_parallel_size=1,
        data_parallel_rank_local=None,
        is_parallelism_agnostic=agnostic,
    )
    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=16, layer_names=("layers.0", "layers.1"), group_id=0),),
        worker_kv_bytes_per_block=1 << 20,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="engine",
        model=OffloadingModelConfig(model, "bfloat16"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=parallel,
        kv_cache_layout=layout,
    )
    return types.SimpleNamespace(config=config)


def job(number: int, keys: list[OffloadKey], chunks: list[int], load: bool = False) -> TransferJob:
    return TransferJob(number, keys, np.array(chunks, np.int64), load, REQUEST)


def finished(tier: Any, job_id: int) -> JobResult:
    end = time.monotonic() + 60
    while True:
        for result in tier.get_finished_jobs():
            assert result.job_id == job_id
            return result
        assert time.monotonic() < end
        time.sleep(0.005)


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.rglob("*.object"))


@pytest.mark.parametrize("options", [{}, {"head_dim": 64, "scheme": "w2x2x3", "threads": 2}, {"dtype": "bytes"}], ids=["plain", "fused", "bytes"])
def test_blocks_come_back_in_other_places(options: dict[str, Any], kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    primary = fused(kv)
    before = primary.copy()
    tier = make(tmp_path, primary, **options)
    assert tier.medium is Medium.STORAGE and not tier.has_pending_work()
    keys = [key(number) for number in range(10)]
    assert all(tier.lookup(of, REQUEST) is LookupResult.MISS for of in keys)
    tier.on_new_request(REQUEST)
    tier.submit_store(job(1, keys, list(range(10))))
    tier.drain_jobs()
    assert tier.has_pending_work()
    stored = finished(tier, 1)
    assert stored.success and stored.transfer_bytes == 10 * primary.shape[1] and not tier.has_pending_work()
    assert all(tier.lookup(of, REQUEST) is LookupResult.HIT for of in keys)
    assert tier.lookup(key(0, group=1), REQUEST) is LookupResult.MISS
    on_disk = sum(path.stat().st_size for path in files_of(tmp_path))
    assert len(files_of(tmp_path)) == 10
    ratio = 10 * primary.shape[1] / on_disk
    assert ratio > {"plain": 1.4, "fused": 1.43, "bytes": 0.99}["bytes" if "dtype" in options else "fused" if options else "plain"], ratio
    print(f"{options}: {ratio:.4f}")
    # A second store of the same is done at once.
    tier.submit_store(job(2, keys, list(range(10))))
    assert finished(tier, 2).success
    tier.shutdown()
    # Another engine, after a restart: in reverse, into blocks 2 to 11.
    again = np.full_like(primary, 0xAA)
    tier = make(tmp_path, again, **options)
    tier.submit_load(job(3, keys, list(range(11, 1, -1)), load=True))
    loaded = finished(tier, 3)
    assert loaded.success and loaded.successful_keys is None
    for number in range(10):
        assert np.array_equal(again[11 - number], before[number])
    assert (again[:2] == 0xAA).all()
    tier.shutdown()


def test_failures_are_reported(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    primary = fused(kv)
    tier = make(tmp_path, primary)
    keys = [key(number) for number in range(4)]
    tier.submit_store(job(1, keys, [0, 1, 2, 3]))
    assert finished(tier, 1).success
    # Nobody has stored the fifth.
    tier.submit_load(job(2, [*keys, key(9)], [4, 5, 6, 7, 8], load=True))
    result = finished(tier, 2)
    assert not result.success and list(result.successful_keys or ()) == keys
    assert all(np.array_equal(primary[4 + number], primary[number]) for number in range(4))
    # Damaged: flipped, truncated, two swapped.
    for damage in ("flip", "truncate", "swap"):
        first, second, *_ = files_of(tmp_path)
        data = bytearray(first.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 1
            first.write_bytes(data)
        elif damage == "truncate":
            first.write_bytes(data[:-100])
        else:
            first.write_bytes(second.read_bytes())
            second.write_bytes(data)
        primary[4:8] = 0xAA
        tier.submit_load(job(3, keys, [4, 5, 6, 7], load=True))
        result = finished(tier, 3)
        good = set(result.successful_keys or ())
        assert not result.success and len(good) == (2 if damage == "swap" else 3), damage
        for number, of in enumerate(keys):
            assert (tier.lookup(of, REQUEST) is LookupResult.HIT) == (of in good)
            assert of not in good or np.array_equal(primary[4 + number], primary[number]), damage
        # What is gone is stored anew.
        tier.submit_store(job(4, keys, [0, 1, 2, 3]))
        assert finished(tier, 4).success
    tier.submit_load(job(5, keys, [4, 5, 6, 7], load=True))
    assert finished(tier, 5).success
    # Blocks that are none.
    tier.submit_store(job(6, [key(20)], [BLOCKS]))
    assert not finished(tier, 6).success
    tier.submit_load(job(7, keys[:1], [-1], load=True))
    result = finished(tier, 7)
    assert not result.success and result.successful_keys is None
    tier.submit_store(job(8, keys, [0]))
    assert not finished(tier, 8).success
    tier.shutdown()


def test_damage_that_cannot_be_removed(kv: torch.Tensor, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A miss, with the error of the checksum in the log; then it is stored anew."""
    primary = fused(kv)
    tier = make(tmp_path, primary)
    tier.submit_store(job(1, [key(0)], [0]))
    assert finished(tier, 1).success
    (path,) = files_of(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "unlink", refused)
    tier.submit_load(job(2, [key(0)], [5], load=True))
    assert not finished(tier, 2).success
    (message,) = (record.getMessage() for record in caplog.records if "a block was not loaded" in record.getMessage())
    assert "checksum" in message and str(path) in message and "key b'" in message and len(message) < 1000
    assert "Permission denied" in caplog.text
    assert path.exists() and tier.lookup(key(0), REQUEST) is LookupResult.MISS
    tier.submit_store(job(3, [key(0)], [0]))
    assert finished(tier, 3).success and tier.lookup(key(0), REQUEST) is LookupResult.HIT
    tier.submit_load(job(4, [key(0)], [5], load=True))
    assert finished(tier, 4).success and np.array_equal(primary[5], primary[0])
    tier.shutdown()


def test_a_full_disk_is_said_once(kv: torch.Tensor, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    primary = fused(kv)
    tier = make(tmp_path, primary)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    tier.submit_store(job(1, [key(number) for number in range(10)], list(range(10))))
    result = finished(tier, 1)
    monkeypatch.undo()
    assert not result.success and result.successful_keys is None
    (message,) = (record.getMessage() for record in caplog.records if "No space left" in record.getMessage())
    assert message.startswith("a block was not stored: key b'") and f"file {tmp_path}" in message
    tier.submit_store(job(2, [key(0)], [0]))
    assert finished(tier, 2).success
    tier.shutdown()


def test_it_keeps_its_bound(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    primary = fused(kv)
    bound = 3 * primary.shape[1]
    tier = make(tmp_path, primary, max_bytes=bound)
    for number in range(10):
        tier.submit_store(job(number, [key(number)], [number]))
        assert finished(tier, number).success
        tier.touch([key(0)], REQUEST)
        assert sum(path.stat().st_size for path in files_of(tmp_path)) <= bound
    assert tier.lookup(key(0), REQUEST) is LookupResult.HIT and tier.lookup(key(1), REQUEST) is LookupResult.MISS
    tier.shutdown()
    full = make(tmp_path / "small", primary, max_bytes=100)
    full.submit_store(job(1, [key(1)], [1]))
    assert not finished(full, 1).success
    full.shutdown()


def test_engines_of_other_layouts_share_nothing(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    primary = fused(kv)
    tier = make(tmp_path, primary)
    tier.submit_store(job(1, [key(1)], [1]))
    assert finished(tier, 1).success
    other = make(tmp_path, primary[:, : primary.shape[1] // 2].copy())
    assert other.lookup(key(1), REQUEST) is LookupResult.MISS
    assert make(tmp_path, primary, dtype="fp16").lookup(key(1), REQUEST) is LookupResult.MISS
    assert make(tmp_path, primary, head_dim=64, scheme="w3").lookup(key(1), REQUEST) is LookupResult.HIT
    for agnostic in (False, True):
        known = make(tmp_path, primary, spec(agnostic=agnostic))
        known.submit_store(job(1, [key(2)], [2]))
        assert finished(known, 1).success
        changed = [spec(model="other"), spec(rank=1), spec(tp_size=4), spec(layout="BLHNC"), spec(agnostic=True)]
        if agnostic:
            changed = [spec(model="other", agnostic=True), spec(layout="BLHNC", agnostic=True)]
            assert make(tmp_path, primary, spec(rank=1, tp_size=4, agnostic=True)).lookup(key(2), REQUEST) is LookupResult.HIT
        for other_spec in changed:
            assert make(tmp_path, primary, other_spec).lookup(key(2), REQUEST) is LookupResult.MISS
        assert make(tmp_path, primary, spec(agnostic=agnostic)).lookup(key(2), REQUEST) is LookupResult.HIT


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"dtype": "float"}, "there is no dtype 'float'"),
        ({"scheme": "w4"}, "no scheme 'w4'"),
        ({"workers": 0}, "workers must be"),
        ({"max_bytes": -5}, "max_bytes must be"),
        ({"folder": ""}, "the folder must be"),
        ({"head_dim": -1}, "head_dim must be"),
    ],
)
def test_bad_configurations(config: dict[str, Any], message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(splitzip.ArgumentError, match=message):
        make(tmp_path, np.zeros((2, 4096), np.uint8), **config)
    with pytest.raises(splitzip.ArgumentError, match="whole elements of bf16"):
        make(tmp_path, np.zeros((2, 4095), np.uint8))
