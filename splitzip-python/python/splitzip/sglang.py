"""SGLang: a storage backend of HiCache that keeps pages in a folder, compressed without losing a bit.

.. code-block:: sh

   python -m sglang.launch_server .. --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config \\
     '{"backend_name": "splitzip", "module_path": "splitzip.sglang", "class_name": "SplitZipStorage", "folder": "/var/cache/kv"}'

Tried with the classes of SGLang 0.5.23.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

try:
    import torch
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig, HiCacheStorageExtraInfo
except ImportError as error:
    raise ImportError(f"splitzip.sglang needs SGLang 0.5.23 or newer, and PyTorch ({error}): pip install 'splitzip[sglang]'", name=error.name) from error

from ._folder import FolderStore
from ._notices import Notices
from ._objects import TORCH_DTYPES, ObjectCoder, Region
from ._options import pick
from .errors import ArgumentError, Error, FrameError

__all__ = ["SplitZipStorage"]

logger = logging.getLogger(__name__)

#: Those of the coder.
_OPTIONS = ("scheme", "bases", "parts", "checksums", "threads")
#: What the factory itself needs, and what other parts of SGLang read.
_OF_SGLANG = ("backend_name", "module_path", "class_name", "interface_v1")


class SplitZipStorage(HiCacheStorage):  # type: ignore[misc]
    """Keeps pages in files of a folder, each as one frame.

    Parameters
    ----------
    storage_config
        That of SGLang. Its ``extra_config`` has ``folder``; ``max_bytes`` (0, no limit; what was not used for longest goes first); ``sync`` (false, whether a file is
        on the disk before it counts); ``uint8`` (``"bytes"``, or what pools of ``uint8`` are: ``"e4m3"``, ``"e5m2"``); ``scheme``, ``bases``, ``parts``, ``checksums``,
        ``threads``.
    kwargs
        Given by the factory, and not needed.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Any = None) -> None:
        given = {name: value for name, value in (storage_config.extra_config or {}).items() if name not in _OF_SGLANG}
        options = pick(given, {"max_bytes": 0, "sync": False, "uint8": "bytes"}, ("folder", *_OPTIONS), "the backend splitzip")
        if "folder" not in options:
            raise ArgumentError("the backend needs a folder in its extra config: {\"folder\": ..}")
        if options["uint8"] not in ("bytes", "e4m3", "e5m2"):
            raise ArgumentError(f"uint8 cannot be {options['uint8']!r}; it must be one of bytes, e4m3, e5m2")
        self._uint8 = options["uint8"]
        self._options = {name: options[name] for name in _OPTIONS if name in options}
        self._coder = ObjectCoder(**self._options)
        self._shape: tuple[int, ...] = ()
        self._store = FolderStore(options["folder"], max_bytes=options["max_bytes"], sync=bool(options["sync"]))
        self._notices = Notices(logger)
        self._config = storage_config
        self._namespace = _namespace(storage_config, (), None)

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Takes the shape of pages from the pool, so that keys and values are coded apart; pages of unknown pools are coded in one piece."""
        super().register_mem_pool_host(mem_pool_host)
        self._shape = _page_shape(mem_pool_host)
        if len(self._shape) == 4:
            self._coder = ObjectCoder(head_dim=mem_pool_host.head_dim, **self._options)
        # The same tokens are other bytes in another layout.
        self._namespace = _namespace(self._config, self._shape, getattr(mem_pool_host, "layout", None))

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        """Decompresses a page into ``target_location``; ``None`` when there is none, or a damaged one, which is removed."""
        if target_location is None:
            raise ArgumentError("a page needs memory to go to; give target_location")
        name = self._name(key)
        try:
            frame = self._store.read(name)
            try:
                self._coder.decode(self._regions(target_location), frame, _octets(target_location), name)
            except FrameError:
                self._store.discard(name)
                raise
        except KeyError:
            return None
        except (Error, OSError) as error:
            self._notices.warn("a page was not loaded", error, self._store.describe(name))
            return None
        return target_location

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[torch.Tensor | None]:
        """The same for many."""
        return [self.get(key, target) for key, target in zip(keys, target_locations, strict=True)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Compresses a page, and stores it unless it is there."""
        page = value if value is not None else target_location
        if page is None:
            raise ArgumentError("there is no page to store; give value")
        name = self._name(key)
        try:
            if name in self._store:
                self._store.touch([name])
            else:
                self._store.put(name, self._coder.encode(self._regions(page), _octets(page), name).data)
        except (Error, OSError) as error:
            self._notices.warn("a page was not stored", error, self._store.describe(name))
            return False
        return True

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None) -> bool:
        """The same for many; whether all are there now."""
        return all([self.set(key, value) for key, value in zip(keys, values, strict=True)])

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        """Decompresses pages into the pool of the host."""
        pool, loaded = self.mem_pool_host, []
        for key, index in zip(keys, host_indices[:: pool.page_size].tolist(), strict=True):
            page = self.get(key, pool.get_dummy_flat_data_page())
            if page is not None:
                pool.set_from_flat_data_page(index, page)
            loaded.append(page is not None)
        return loaded

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        """Compresses pages of the pool of the host."""
        pool = self.mem_pool_host
        pages = host_indices[:: pool.page_size].tolist()
        return [self.set(key, pool.get_data_page(index, flat=True)) for key, index in zip(keys, pages, strict=True)]

    def exists(self, key: str) -> bool:
        """Whether there is a page."""
        return self._name(key) in self._store

    def clear(self) -> None:
        """Removes all pages of the folder, those of other models as well."""
        self._store.clear()

    def close(self) -> None:
        """Has nothing to end: files are complete as soon as they are there."""

    def _name(self, key: str) -> bytes:
        return self._namespace + key.encode()

    def _regions(self, page: torch.Tensor) -> list[Region]:
        dtype = TORCH_DTYPES.get(str(page.dtype), "bytes")
        if page.dtype == torch.uint8:
            dtype = self._uint8
        if dtype == "bytes":
            return [Region(dtype, (page.numel() * page.element_size(),))]
        shape: Sequence[int] = self._shape
        # Of another pool, or one whose pages are laid out in another way.
        if not shape or torch.Size(shape).numel() != page.numel():
            shape = (page.numel(),)
        return [Region(dtype, tuple(shape))]


def _octets(page: torch.Tensor) -> Any:
    if page.device.type != "cpu" or not page.is_contiguous():
        raise ArgumentError("pages are contiguous tensors of the host; give such ones")
    return page.reshape(-1).view(torch.uint8).numpy()


def _page_shape(pool: Any) -> tuple[int, ...]:
    """The shape of a page, with a token's row innermost, and keys and values outermost where there are both; empty for pools that are not known."""
    layers, tokens, layout = (getattr(pool, name, None) for name in ("layer_num", "page_size", "layout"))
    if not isinstance(layers, int) or not isinstance(tokens, int):
        return ()
    row = getattr(pool, "kv_cache_dim", None)
    if isinstance(row, int):
        shapes = {"layer_first": (layers, tokens, row), "page_first": (tokens, layers, row), "page_first_direct": (layers, tokens, row)}
        return shapes.get(str(layout), ())
    heads, dim = getattr(pool, "head_num", None), getattr(pool, "head_dim", None)
    if not isinstance(heads, int) or not isinstance(dim, int):
        return ()
    pairs = {
        "layer_first": (2, layers, tokens, heads * dim),
        "page_first": (2, 1, tokens, layers * heads * dim),
        "page_first_direct": (2, layers, tokens, heads * dim),
        "page_head": (2, heads, tokens, layers * dim),
    }
    return pairs.get(str(layout), ())


def _namespace(config: HiCacheStorageConfig, shape: tuple[int, ...], layout: str | None) -> bytes:
    """What keys of other models, layouts and ranks differ in. Pages of MLA are the same on all ranks of tensor parallelism."""
    fields: dict[str, Any] = {
        "model": config.model_name,
        "pp": [config.pp_rank, config.pp_size],
        "cp": [config.attn_cp_rank, config.attn_cp_size],
        "dcp": [config.dcp_rank, config.dcp_size],
        "page": config.logical_page_size,
        "shape": shape,
        "layout": layout,
    }
    if not config.is_mla_model:
        fields["tp"] = [config.tp_rank, config.tp_size]
    return json.dumps(fields, sort_keys=True).encode() + b"\0"
