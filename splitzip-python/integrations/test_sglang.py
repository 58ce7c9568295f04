"""The backend of ``splitzip.sglang``, made by SGLang's own factory, over pages as its host pools lay them out. (No server runs: that takes a GPU.)"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import splitzip
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
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


class Pool:
    """Pages of keys and values as ``MHATokenToKVPoolHost`` has them, in each of its layouts."""

    def __init__(self, kv: torch.Tensor, layout: str) -> None:
        _, self.layer_num, self.head_num, tokens, self.head_dim = kv.shape
        self.layout, self.page_size, self.dtype = layout, PAGE, kv.dtype
        pages = kv.reshape(2, self.layer_num, self.head_num, tokens // PAGE, PAGE, self.head_dim)
        # Two, layers, heads, pages, tokens of a page, dim.
        order = {
            "layer_first": (3, 0, 1, 4, 2, 5),
            "page_first": (3, 0, 4, 1, 2, 5),
            "page_first_direct": (3, 0, 1, 4, 2, 5),
            "page_head": (3, 0, 2, 4, 1, 5),
        }[layout]
        self.pages = pages.permute(order).contiguous()

    def get_data_page(self, index: int, flat: bool = True) -> torch.Tensor:
        return self.pages[index // PAGE].flatten()

    def get_dummy_flat_data_page(self) -> torch.Tensor:
        return torch.zeros(self.pages[0].numel(), dtype=self.dtype)

    def set_from_flat_data_page(self, index: int, page: torch.Tensor) -> None:
        self.pages[index // PAGE] = page.reshape(self.pages[0].shape)


def words(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.rglob("*.object"))


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct", "page_head"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "e4m3", "uint8"])
def test_pages_come_back(layout: str, dtype: str, kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    converted = {"bf16": kv, "fp16": kv.half()}.get(dtype, kv.float().clamp(-448, 448).to(torch.float8_e4m3fn))
    pool = Pool(converted.view(torch.uint8) if dtype == "uint8" else converted, layout)
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
    indices = torch.arange(5 * PAGE)
    assert backend.batch_set_v1(keys, indices) == [True] * 5
    before = pool.pages.clone()
    words(pool.pages).zero_()
    pool.pages = torch.zeros_like(before.view(torch.uint8)).view(before.dtype)
    assert backend.batch_get_v1([*keys[:4], "unknown"], indices) == [True] * 4 + [False]
    assert torch.equal(words(pool.pages[:4]), words(before[:4])) and not words(pool.pages[4]).any()


def test_mla_pages(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    class Mla:
        layer_num, page_size, kv_cache_dim, layout, dtype = 10, PAGE, 576, "layer_first", torch.bfloat16

    backend = make(tmp_path, mla=True)
    backend.register_mem_pool_host(Mla())
    page = kv.reshape(-1)[: 10 * PAGE * 576].clone()
    assert backend.set("page", page)
    target = torch.zeros_like(page)
    assert backend.get("page", target) is target and torch.equal(words(page), words(target))
    # Pages of MLA are those of every rank; others are not.
    other = make(tmp_path, rank=1, mla=True)
    other.register_mem_pool_host(Mla())
    assert other.exists("page")


def test_pools_that_are_not_known(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    backend = make(tmp_path)
    backend.register_mem_pool_host(object())
    for number, page in enumerate((kv[0, 0].flatten(), torch.arange(1000), torch.randn(77), torch.zeros(0, dtype=torch.bfloat16))):
        assert backend.set(f"page {number}", page)
        target = torch.zeros_like(page)
        assert backend.get(f"page {number}", target) is target and torch.equal(words(page), words(target))


def test_keys_are_those_of_one_model_rank_and_layout(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    backend, pool = make(tmp_path), Pool(kv, "layer_first")
    backend.register_mem_pool_host(pool)
    assert backend.set("page", pool.get_data_page(0))
    for changed in ({"rank": 1}, {"model": "other"}):
        other = make(tmp_path, **changed)
        other.register_mem_pool_host(pool)
        assert not other.exists("page")
    other = make(tmp_path)
    other.register_mem_pool_host(Pool(kv, "page_first"))
    assert not other.exists("page") and backend.exists("page")


def test_damaged_pages_are_misses(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    backend, pool = make(tmp_path), Pool(kv, "layer_first")
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
    pool = Pool(kv, "layer_first")
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
