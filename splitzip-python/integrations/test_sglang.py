"""The backend of ``splitzip.sglang``, made by SGLang's own factory, over pages of its own pools. (No server runs: that takes a GPU.)"""

from __future__ import annotations

import errno
import pathlib
from typing import Any

import pytest
import splitzip
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

PAGE = 32


def make(folder: pathlib.Path, rank: int = 0, mla: bool = False, model: str = "org/model", **extra: Any) -> Any:
    names = {"backend_name": "splitzip", "module_path": "splitzip.sglang", "class_name": "SplitZipStorage"}
    config = HiCacheStorageConfig(
        tp_rank=rank,
        tp_size=2,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=mla,
        enable_storage_metrics=False,
        is_page_first_layout=False,
        model_name=model,
        extra_config={**names, "folder": str(folder), **extra},
    )
    return StorageBackendFactory.create_backend("dynamic", config, None)


def pool_of(kv: torch.Tensor, layout: str) -> Any:
    """A pool of SGLang's for keys and values, in one of its layouts. Its constructor asks a GPU for what it mirrors, so its fields are filled in here; its methods are its own."""
    pool: Any = MHATokenToKVPoolHost.__new__(MHATokenToKVPoolHost)
    _, pool.layer_num, pool.head_num, tokens, pool.head_dim = kv.shape
    pool.v_head_dim, pool.page_size, pool.layout, pool.dtype, pool.device, pool.pin_memory = pool.head_dim, PAGE, layout, kv.dtype, "cpu", False
    pages = kv.reshape(2, pool.layer_num, pool.head_num, tokens // PAGE, PAGE, pool.head_dim)
    # Two, layers, heads, pages, tokens of a page, dim.
    order, joined = {
        "layer_first": ((0, 1, 3, 4, 2, 5), 2),
        "page_first": ((0, 3, 4, 1, 2, 5), 1),
        "page_first_direct": ((0, 3, 1, 4, 2, 5), None),
        "page_head": ((0, 3, 2, 4, 1, 5), None),
    }[layout]
    buffer = pages.permute(order).contiguous()
    pool.kv_buffer = buffer if joined is None else buffer.flatten(joined, joined + 1)
    return pool


def mla_pool_of(rows: torch.Tensor, layout: str) -> Any:
    """The same for rows of MLA, ``[layers, tokens, 576]``."""
    pool: Any = MLATokenToKVPoolHost.__new__(MLATokenToKVPoolHost)
    pool.layer_num, tokens, pool.kv_cache_dim = rows.shape
    pool.page_size, pool.layout, pool.dtype, pool.device, pool.pin_memory, pool.dcp_size, pool.dcp_rank = PAGE, layout, rows.dtype, "cpu", False, 1, 0
    pages = rows.reshape(pool.layer_num, tokens // PAGE, PAGE, 1, pool.kv_cache_dim)
    pool.kv_buffer = {
        "layer_first": pages.flatten(1, 2),
        "page_first": pages.permute(1, 2, 0, 3, 4).flatten(0, 1),
        "page_first_direct": pages.permute(1, 0, 2, 3, 4),
    }[layout].contiguous()
    return pool


def words(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.rglob("*.object"))


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct", "page_head"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "e4m3", "uint8"])
def test_pages_come_back(layout: str, dtype: str, kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    converted = {"bf16": kv, "fp16": kv.half()}.get(dtype, kv.float().clamp(-448, 448).to(torch.float8_e4m3fn))
    pool = pool_of(converted.view(torch.uint8) if dtype == "uint8" else converted, layout)
    options = {"uint8": "e4m3"} if dtype == "uint8" else {}
    backend = make(tmp_path, **options)
    backend.register_mem_pool_host(pool)
    keys = [f"hash-{number}" for number in range(5)]
    assert backend.batch_exists(keys) == 0
    pages = [pool.get_data_page(number * PAGE) for number in range(5)]
    assert backend.batch_set(keys[:4], pages[:4])
    assert backend.batch_exists(keys) == 4 and backend.exists(keys[3]) and not backend.exists(keys[4])
    assert backend.batch_set(keys[:4], pages[:4])
    raw, on_disk = sum(page.nbytes for page in pages[:4]), sum(path.stat().st_size for path in files_of(tmp_path))
    assert raw / on_disk > {"bf16": 1.44, "fp16": 1.12}.get(dtype, 1.1), raw / on_disk
    print(f"{layout} {dtype}: {raw / on_disk:.4f}")
    # After a restart.
    backend = make(tmp_path, **options)
    backend.register_mem_pool_host(pool)
    targets = [pool.get_dummy_flat_data_page() for _ in keys]
    loaded = backend.batch_get(keys, targets)
    assert [page is not None for page in loaded] == [True] * 4 + [False]
    for page, target in zip(pages[:4], targets):
        assert torch.equal(words(page), words(target))
    # The calls that know the pool.
    indices, before = torch.arange(5 * PAGE), [page.clone() for page in pages]
    assert backend.batch_set_v1(keys, indices) == [True] * 5
    pool.kv_buffer.view(torch.uint8).zero_()
    assert backend.batch_get_v1([*keys[:4], "unknown"], indices) == [True] * 4 + [False]
    for number, page in enumerate(before):
        assert torch.equal(words(pool.get_data_page(number * PAGE)), words(page) * (number < 4))


def test_damage_that_cannot_be_removed(kv: torch.Tensor, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A miss, with the error of the checksum in the log; then it is stored anew."""
    pool = pool_of(kv, "layer_first")
    backend = make(tmp_path)
    backend.register_mem_pool_host(pool)
    page, target = pool.get_data_page(0), pool.get_dummy_flat_data_page()
    assert backend.set("key", page)
    (path,) = files_of(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "unlink", refused)
        assert backend.get("key", target) is None
    (message,) = (record.getMessage() for record in caplog.records if "a page was not loaded" in record.getMessage())
    assert "checksum" in message and str(path) in message and "Permission denied" in caplog.text
    assert path.exists() and not backend.exists("key") and backend.get("key", target) is None
    assert backend.set("key", page) and backend.exists("key") and torch.equal(words(backend.get("key", target)), words(page))


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct"])
def test_pages_of_mla(layout: str, kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    pool = mla_pool_of(kv.reshape(-1)[: 10 * 3 * PAGE * 576].reshape(10, 3 * PAGE, 576), layout)
    backend = make(tmp_path, mla=True)
    backend.register_mem_pool_host(pool)
    keys, indices, before = ["a", "b", "c"], torch.arange(3 * PAGE), pool.kv_buffer.clone()
    assert backend.batch_set_v1(keys, indices) == [True] * 3
    assert before.nbytes / sum(path.stat().st_size for path in files_of(tmp_path)) > 1.42
    words(pool.kv_buffer).zero_()
    # Pages of MLA are those of every rank.
    other = make(tmp_path, rank=1, mla=True)
    other.register_mem_pool_host(pool)
    assert other.batch_get_v1(keys, indices) == [True] * 3
    assert torch.equal(words(pool.kv_buffer), words(before))


def test_pools_that_are_not_known(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    backend = make(tmp_path)
    backend.register_mem_pool_host(object())
    for number, page in enumerate((kv[0, 0].flatten(), torch.arange(1000), torch.randn(77), torch.zeros(0, dtype=torch.bfloat16))):
        assert backend.set(f"page {number}", page)
        target = torch.zeros_like(page)
        assert backend.get(f"page {number}", target) is target and torch.equal(words(page), words(target))


def test_keys_are_those_of_one_model_rank_and_layout(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    backend, pool = make(tmp_path), pool_of(kv, "layer_first")
    backend.register_mem_pool_host(pool)
    assert backend.set("page", pool.get_data_page(0))
    for changed in ({"rank": 1}, {"model": "other"}):
        other = make(tmp_path, **changed)
        other.register_mem_pool_host(pool)
        assert not other.exists("page")
    other = make(tmp_path)
    other.register_mem_pool_host(pool_of(kv, "page_first"))
    assert not other.exists("page") and backend.exists("page")


def test_damaged_pages_are_misses(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    backend, pool = make(tmp_path), pool_of(kv, "layer_first")
    backend.register_mem_pool_host(pool)
    pages = [pool.get_data_page(number * PAGE) for number in range(2)]
    for damage in ("flip", "truncate", "swap"):
        assert backend.batch_set(["a", "b"], pages)
        first, second = files_of(tmp_path)
        data = bytearray(first.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 8
            first.write_bytes(data)
        elif damage == "truncate":
            first.write_bytes(data[:200])
        else:
            first.write_bytes(second.read_bytes())
            second.write_bytes(data)
        targets = [pool.get_dummy_flat_data_page() for _ in pages]
        loaded = backend.batch_get(["a", "b"], targets)
        assert sum(page is not None for page in loaded) == (0 if damage == "swap" else 1), damage
        for page, target in zip(pages, loaded):
            assert target is None or torch.equal(words(page), words(target))
        assert [backend.exists(name) for name in ("a", "b")] == [page is not None for page in loaded]
    # A page of another size under the same key is a miss as well.
    assert backend.batch_set(["a", "b"], pages)
    assert backend.get("a", torch.zeros(1000, dtype=torch.bfloat16)) is None


def test_it_keeps_its_bound_and_clears(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    pool = pool_of(kv, "layer_first")
    page = pool.get_data_page(0)
    backend = make(tmp_path, max_bytes=3 * page.nbytes)
    backend.register_mem_pool_host(pool)
    for number in range(8):
        assert backend.set(f"page {number}", page)
        assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 3 * page.nbytes
    assert backend.exists("page 7") and not backend.exists("page 0")
    backend.clear()
    assert not files_of(tmp_path)
    tiny = make(tmp_path / "tiny", max_bytes=10)
    assert tiny.set("page", page) is False
    tiny.close()


def test_bad_configurations(tmp_path: pathlib.Path) -> None:
    for extra, message in (({"level": 3}, "no option 'level'"), ({"scheme": "auto"}, "no scheme 'auto'"), ({"uint8": "bf16"}, "uint8 cannot be")):
        with pytest.raises(splitzip.ArgumentError, match=message):
            make(tmp_path, **extra)
    backend = make(tmp_path)
    with pytest.raises(splitzip.ArgumentError, match="give target_location"):
        backend.get("page")
    with pytest.raises(splitzip.ArgumentError, match="give value"):
        backend.set("page")
    assert backend.set("page", torch.zeros(10, 10).t()[::2]) is False
