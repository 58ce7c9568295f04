"""LMCache's own ``StorageManager`` and server, with the serde and the adapter of ``splitzip.lmcache``."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import splitzip
import torch
from conftest import octets
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec
from lmcache.v1.distributed.config import EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig
from lmcache.v1.distributed.l2_adapters.config import L2AdaptersConfig
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor
from lmcache.v1.distributed.storage_manager import StorageManager
from splitzip import lmcache as integration
from splitzip._folder import FolderStore

FP8 = torch.float8_e4m3fn


def key(number: int, group: int = 0, salt: str = "") -> ObjectKey:
    return ObjectKey(b"%032d" % number, "org/model", 0, group, salt)


def chunk(kv: torch.Tensor, tokens: int = 160) -> torch.Tensor:
    """``[2, layers, tokens, heads * head_dim]``, as LMCache keeps a chunk."""
    return kv[:, :, :, :tokens].permute(0, 1, 3, 2, 4).flatten(3).contiguous()


def objects(kv: torch.Tensor) -> dict[str, tuple[MemoryLayoutDesc, list[list[torch.Tensor]]]]:
    """Layouts, and two objects of each, made of real keys and values."""
    real = [chunk(kv), chunk(kv.flip(1))]
    # A latent and a rotary part: rows of 576 from those of 192.
    mla = [part.reshape(1, -1, 32, 576) for part in (one.reshape(-1)[: 90 * 32 * 576].reshape(90, 32, 576) for one in real)]
    fp8 = [one.float().clamp(-448, 448).to(FP8) for one in real]
    scales = [torch.arange(160 * 30, dtype=torch.uint8).reshape(160, 30), torch.full((160, 30), 7, dtype=torch.uint8)]
    made = {
        "bf16": [[one] for one in real],
        "mla": [[one] for one in mla],
        "fp8": [[one] for one in fp8],
        "fp16": [[one.half()] for one in real],
        "two groups": [[one, scale] for one, scale in zip(real, scales)],
        "fp8 as uint8": [[one.view(torch.uint8)] for one in fp8],
        "fp32": [[one.float()[:, :4]] for one in real],
    }
    described = {}
    for name, groups in made.items():
        layout = MemoryLayoutDesc([part.shape for part in groups[0]], [part.dtype for part in groups[0]])
        described[name] = (layout, groups)
    return described


LAYOUTS = ["bf16", "mla", "fp8", "fp16", "two groups", "fp8 as uint8", "fp32"]


class Manager:
    """A manager of its own, with the adapter over a folder."""

    def __init__(self, folder: pathlib.Path, serde: dict[str, Any] | None = None, **params: Any) -> None:
        adapter = PluginL2AdapterConfig("splitzip.lmcache", "FolderL2Adapter", {"folder": str(folder), **params})
        adapter.serde_config = None if serde is None else SerdeConfig("splitzip", serde)
        l1 = L1ManagerConfig(L1MemoryManagerConfig(256 << 20, False, shm_name=""))
        self.manager = StorageManager(StorageManagerConfig(l1, EvictionConfig("LRU"), L2AdaptersConfig([adapter])))
        self.folder = folder

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *_: object) -> None:
        self.manager.close()

    def store(self, layout: MemoryLayoutDesc, objects: dict[ObjectKey, list[torch.Tensor]], files: int) -> None:
        """Writes objects to L1, and waits until the folder has so many files."""
        reserved = self.manager.reserve_write(list(objects), layout)
        assert set(reserved) == set(objects)
        for name, obj in reserved.items():
            memoryview(obj.byte_array).cast("B")[:] = octets(*objects[name])
        self.manager.finish_write(list(objects))
        wait_for(lambda: len(files_of(self.folder)) == files, f"there are {len(files_of(self.folder))} files, and not {files}")

    def load(self, layout: MemoryLayoutDesc, keys: list[ObjectKey]) -> list[bytes] | None:
        """Prefetches keys, and returns what L1 has then; ``None`` when not all were hits."""
        spec = PrefetchTaskSpec(key_groups=[GroupedObjectKeys(keys, keys[0].object_group_id, layout)])
        handle = self.manager.submit_prefetch_task(spec)
        assert self.manager.wait_prefetch_status(handle, 60)
        result = self.manager.query_prefetch_status(handle)
        assert result is not None
        hits = sum(row.popcount() for row in result.l2_hit_cells)
        if hits != len(keys):
            return None
        with self.manager.read_prefetched_results(keys) as found:
            assert found is not None
            loaded = [bytes(memoryview(obj.byte_array).cast("B")) for obj in found]
        self.manager.finish_read_prefetched(keys)
        return loaded


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.rglob("*.object"))


def wait_for(condition: Any, message: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.02)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("options", [{}, {"head_dim": 64, "scheme": "w2x2x3", "checksums": "both", "threads": 1, "max_workers": 2}], ids=["plain", "options"])
def test_store_drop_load(name: str, options: dict[str, Any], kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    layout, groups = objects(kv)[name]
    serde = {**options, **({"uint8": "e4m3"} if name == "fp8 as uint8" else {})}
    stored = {key(number): group for number, group in enumerate(groups)}
    raw = sum(len(octets(*group)) for group in groups)
    with Manager(tmp_path, serde) as manager:
        manager.store(layout, stored, len(groups))
    on_disk = sum(path.stat().st_size for path in files_of(tmp_path))
    with Manager(tmp_path, serde) as manager:
        loaded = manager.load(layout, list(stored))
        assert loaded is not None, "not all were hits"
        for one, group in zip(loaded, groups, strict=True):
            assert one == octets(*group)
    least = {"bf16": 1.44, "mla": 1.4, "fp8": 1.1, "fp16": 1.12, "two groups": 1.4, "fp8 as uint8": 1.1, "fp32": 0.99}[name]
    assert raw / on_disk > least, raw / on_disk
    print(f"{name} {options}: {raw / on_disk:.4f}")


def test_without_the_serde_bytes_are_kept(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    layout, groups = objects(kv)["two groups"]
    with Manager(tmp_path) as manager:
        manager.store(layout, {key(0): groups[0]}, 1)
    with Manager(tmp_path) as manager:
        assert manager.load(layout, [key(0)]) == [octets(*groups[0])]


def test_noise_fits_as_well(tmp_path: pathlib.Path) -> None:
    """What cannot be compressed takes no more than the bound that was asked for, NaNs and all."""
    noise = torch.randint(0, 1 << 16, (2, 4, 256, 512), dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    layout = MemoryLayoutDesc([noise.shape], [noise.dtype])
    with Manager(tmp_path, {"head_dim": 128}) as manager:
        manager.store(layout, {key(0): [noise]}, 1)
    (path,) = files_of(tmp_path)
    assert path.stat().st_size < 1.004 * noise.nbytes
    with Manager(tmp_path, {}) as manager:
        assert manager.load(layout, [key(0)]) == [octets(noise)]


def test_damaged_files_are_misses_and_heal(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    layout, groups = objects(kv)["bf16"]
    for damage in ("flip start", "flip middle", "flip end", "truncate", "empty", "swap"):
        folder = tmp_path / damage.replace(" ", "-")
        with Manager(folder, {}) as manager:
            manager.store(layout, {key(0): groups[0], key(1): groups[1]}, 2)
        with Manager(folder, {}) as manager:
            # Behind the back of a process that knows of the files.
            first, second = files_of(folder)
            data = bytearray(first.read_bytes())
            if damage.startswith("flip"):
                at = {"start": 150, "middle": len(data) // 2, "end": len(data) - 64}[damage.split()[1]]
                data[at] ^= 0x20
                first.write_bytes(data)
            elif damage == "swap":
                shutil.copy(second, first)
                second.write_bytes(data)
            else:
                first.write_bytes(data[: len(data) // 2 if damage == "truncate" else 0])
            hits = {number: manager.load(layout, [key(number)]) for number in range(2)}
            good = [number for number, loaded in hits.items() if loaded == [octets(*groups[number])]]
            # Misses are None: never other bytes.
            assert all(hits[number] is None for number in hits if number not in good), damage
            assert len(good) == (0 if damage == "swap" else 1), damage
            wait_for(lambda: len(files_of(folder)) == len(good), "the damaged file is still there")
            manager.store(layout, {key(number): groups[number] for number in hits if number not in good}, 2)
        with Manager(folder, {}) as manager:
            assert manager.load(layout, [key(0), key(1)]) == [octets(*groups[0]), octets(*groups[1])]


def test_damage_that_cannot_be_removed_is_a_miss(kv: torch.Tensor, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a hit that fails again and again; and it is stored anew."""
    layout, groups = objects(kv)["bf16"]
    with Manager(tmp_path, {}) as manager:
        manager.store(layout, {key(0): groups[0]}, 1)
    with Manager(tmp_path, {}) as manager:
        (path,) = files_of(tmp_path)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x20
        path.write_bytes(data)

        def refused(*_: object, **__: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr(pathlib.Path, "unlink", refused)
            assert manager.load(layout, [key(0)]) is None
            (adapter,) = integration._adapters
            assert path.exists() and look_up(adapter, [key(0)]) == []
        manager.store(layout, {key(0): groups[0]}, 1)
        wait_for(lambda: path.read_bytes() != data, "it was not stored anew")
    with Manager(tmp_path, {}) as manager:
        assert manager.load(layout, [key(0)]) == [octets(*groups[0])]


def test_other_layouts_and_keys_are_misses(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    layout, groups = objects(kv)["bf16"]
    with Manager(tmp_path, {}) as manager:
        manager.store(layout, {key(0): groups[0]}, 1)
    two, layers, tokens, row = groups[0][0].shape
    for shape, dtype in (((two, tokens, layers, row), torch.bfloat16), ((two, layers, tokens, row), torch.float16)):
        copy = tmp_path.parent / f"{tmp_path.name}-{dtype}-{shape[1]}"
        shutil.copytree(tmp_path, copy)
        with Manager(copy, {}) as manager:
            assert manager.load(MemoryLayoutDesc([torch.Size(shape)], [dtype]), [key(0)]) is None
    with Manager(tmp_path, {}) as manager:
        for other in (key(1), key(0, group=1), key(0, salt="tenant")):
            assert manager.load(layout, [other]) is None
        assert manager.load(layout, [key(0)]) is not None


def test_options_may_change(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    layout, groups = objects(kv)["bf16"]
    with Manager(tmp_path, {"head_dim": 64, "scheme": "w3"}) as manager:
        manager.store(layout, {key(0): groups[0]}, 1)
    for options in ({}, {"bases": "chunk", "scheme": "stored"}, {"head_dim": 32}):
        with Manager(tmp_path, options) as manager:
            assert manager.load(layout, [key(0)]) == [octets(*groups[0])]


@contextlib.contextmanager
def an_adapter(folder: pathlib.Path, **params: Any) -> Iterator[integration.FolderL2Adapter]:
    adapter = integration.FolderL2Adapter({"folder": str(folder), **params})
    try:
        yield adapter
    finally:
        adapter.close()


class Memory:
    """As much of a memory object as an adapter needs."""

    def __init__(self, data: bytes | int) -> None:
        self.data = bytearray(data)
        self.used = len(self.data)

    @property
    def byte_array(self) -> memoryview:
        return memoryview(self.data)[: self.used]

    def set_used_size(self, size: int) -> None:
        self.used = size

    def get_size(self) -> int:
        return self.used


class Listener:
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def on_l2_keys_stored(self, keys: list[ObjectKey], sizes: list[int]) -> None:
        self.events += [("stored", int(of.chunk_hash)) for of in keys]

    def on_l2_keys_accessed(self, keys: list[ObjectKey]) -> None:
        self.events += [("accessed", int(of.chunk_hash)) for of in keys]

    def on_l2_keys_deleted(self, keys: list[ObjectKey]) -> None:
        self.events += [("deleted", int(of.chunk_hash)) for of in keys]


def done(query: Any) -> Any:
    end = time.monotonic() + 30
    while (result := query()) is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    return result


def store(adapter: integration.FolderL2Adapter, keys: list[ObjectKey], data: list[bytes]) -> Any:
    task = adapter.submit_store_task(keys, [Memory(one) for one in data])
    results: dict[int, Any] = {}

    def query() -> Any:
        results.update(adapter.pop_completed_store_tasks())
        return results.get(task)

    return done(query)


def look_up(adapter: integration.FolderL2Adapter, keys: list[ObjectKey]) -> list[int]:
    task = adapter.submit_lookup_and_lock_task(keys, {})
    return list(done(lambda: adapter.query_lookup_and_lock_result(task)).get_indices_list())


def load(adapter: integration.FolderL2Adapter, keys: list[ObjectKey], size: int) -> dict[int, bytes]:
    memory = [Memory(size) for _ in keys]
    task = adapter.submit_load_task(keys, memory)
    found = done(lambda: adapter.query_load_result(task)).get_indices_list()
    assert adapter.query_load_result(task) is None
    return {number: bytes(memory[number].byte_array) for number in found}


def test_the_whole_interface_of_the_adapter(tmp_path: pathlib.Path) -> None:
    keys = [key(number, salt="tenant" if number % 2 else "") for number in range(6)]
    data = [bytes([number]) * 1000 * (number + 1) for number in range(6)]
    listener = Listener()
    with an_adapter(tmp_path) as adapter:
        assert not adapter.supports_global_eviction and adapter.get_usage().usage_fraction == -1.0
        fds = {adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()}
        assert len(fds) == 3
        adapter.register_listener(listener)
        result = store(adapter, keys, data)
        assert result.is_successful() and result.bytes_transferred() == sum(map(len, data))
        assert store(adapter, keys[:1], data[:1]).bytes_transferred() == 0
        assert look_up(adapter, [*keys, key(99)]) == list(range(6))
        # Memory that is too small for one is a miss of that one alone.
        assert load(adapter, [*keys, key(99)], 5500) == dict(enumerate(data[:5]))
        usage = adapter.get_usage()
        assert usage.total_bytes_used == sum(path.stat().st_size for path in files_of(tmp_path)) == sum(usage.bytes_by_cache_salt.values())
        assert set(usage.bytes_by_cache_salt) == {"", "tenant"}
        page = adapter.list_l2_keys(page_size=4)
        rest = adapter.list_l2_keys(page_size=4, cursor=page.next_page_token)
        assert len(page.entries) == 4 and len(rest.entries) == 2 and rest.next_page_token is None
        assert {entry.key.chunk_hash_hex for entry in page.entries + rest.entries} == {of.chunk_hash.hex() for of in keys}
        assert adapter.list_l2_keys(model_name="other").entries == ()
        for bad in ({"page_size": 0}, {"cursor": "x"}):
            with pytest.raises(ValueError):
                adapter.list_l2_keys(**bad)
        adapter.submit_unlock(keys)
        adapter.delete([keys[0], key(99)])
        assert look_up(adapter, keys[:2]) == [1]
        assert adapter.report_status()["is_healthy"] and adapter.report_status()["objects"] == 5
    assert not adapter.report_status()["is_healthy"]
    assert listener.events == [*(("stored", n) for n in range(6)), *(("accessed", n) for n in range(5)), ("deleted", 0)]
    # After a restart it knows, and tells whoever listens.
    with an_adapter(tmp_path) as adapter:
        later = Listener()
        adapter.set_backend_identity("plugin")
        adapter.register_listener(later)
        assert sorted(later.events) == [("stored", number) for number in range(1, 6)]
        assert adapter.get_usage().total_bytes_used == sum(path.stat().st_size for path in files_of(tmp_path))
        assert load(adapter, keys, 10_000) == {number: data[number] for number in range(1, 6)}
    for params, message in (({}, "needs a folder"), ({"folder": "x", "size": 1}, "no option 'size'"), ({"folder": "x", "workers": 0}, "workers must be")):
        with pytest.raises(splitzip.ArgumentError, match=message):
            integration.FolderL2Adapter(params)


def test_the_adapter_keeps_its_bound(tmp_path: pathlib.Path) -> None:
    listener = Listener()
    with an_adapter(tmp_path, max_bytes=10_000) as adapter:
        assert adapter.supports_global_eviction
        adapter.register_listener(listener)
        keys = [key(number) for number in range(20)]
        for number in range(5):
            assert store(adapter, [keys[number]], [bytes(1500)]).is_successful()
        assert look_up(adapter, keys[:1]) == [0]
        for number in range(5, 20):
            assert store(adapter, [keys[number]], [bytes(1500)]).is_successful()
            assert adapter.get_usage().usage_fraction <= 1 and sum(path.stat().st_size for path in files_of(tmp_path)) <= 10_000
        # What is locked has stayed.
        assert load(adapter, keys[:1], 1500) == {0: bytes(1500)}
        assert not store(adapter, [key(50)], [bytes(20_000)]).is_successful()
        adapter.submit_unlock(keys[:1])
        gone = [number for what, number in listener.events if what == "deleted"]
        assert gone == sorted(gone) and 0 not in gone and len(gone) == 20 - len(files_of(tmp_path))


def test_a_folder_with_objects_of_another_engine(tmp_path: pathlib.Path) -> None:
    """They are none of LMCache's keys, and go as all others do when they are in the way."""
    theirs = FolderStore(tmp_path)
    for name in (b'{"block_bytes": 64}\0' + bytes(32), b"[1, 2]", b"[1, 2, 3, 4, 5]", b"\xff\xfe", b"5"):
        theirs.put(name, bytes(100))
    listener = Listener()
    with an_adapter(tmp_path, max_bytes=3000) as adapter:
        adapter.set_backend_identity("plugin")
        adapter.register_listener(listener)
        assert listener.events == [] and adapter.get_usage().total_bytes_used > 500 and adapter.list_l2_keys().entries == ()
        assert store(adapter, [key(0)], [bytes(2700)]).is_successful() and load(adapter, [key(0)], 2700) == {0: bytes(2700)}
        assert listener.events == [("stored", 0), ("accessed", 0)] and len(adapter.list_l2_keys().entries) == 1


def test_an_eviction_policy_of_lmcache_works(kv: torch.Tensor, tmp_path: pathlib.Path) -> None:
    layout, groups = objects(kv)["bf16"]
    adapter = PluginL2AdapterConfig("splitzip.lmcache", "FolderL2Adapter", {"folder": str(tmp_path), "max_bytes": 20_000_000})
    adapter.serde_config, adapter.eviction_config = SerdeConfig("splitzip", {}), EvictionConfig("LRU", 0.5, 0.5)
    l1 = L1ManagerConfig(L1MemoryManagerConfig(256 << 20, False, shm_name=""))
    manager = StorageManager(StorageManagerConfig(l1, EvictionConfig("LRU"), L2AdaptersConfig([adapter])))
    try:
        for number in range(6):
            reserved = manager.reserve_write([key(number)], layout)
            memoryview(reserved[key(number)].byte_array).cast("B")[:] = octets(*groups[0])
            manager.finish_write([key(number)])
        wait_for(lambda: 0 < sum(path.stat().st_size for path in files_of(tmp_path)) < 10_000_000 and len(files_of(tmp_path)) < 6, "nothing was evicted")
    finally:
        manager.close()


def test_the_serde_alone(kv: torch.Tensor) -> None:
    """With and without a key, and what its options may be."""
    layout, groups = objects(kv)["bf16"]

    class Object(Memory):
        def get_shapes(self) -> list[torch.Size]:
            return layout.shapes

        def get_dtypes(self) -> list[torch.dtype]:
            return layout.dtypes

    serializer, deserializer = integration.SplitZipSerializer(), integration.SplitZipDeserializer()
    src = Object(octets(*groups[0]))
    for name in (None, key(0)):
        frame = Object(serializer.estimate_serialized_size(layout))
        arguments: list[Any] = [] if name is None else [name]
        size = serializer.serialize(src, frame, *arguments)
        frame.set_used_size(size)
        dst = Object(len(src.data))
        deserializer.deserialize(frame, dst, *arguments)
        assert dst.data == src.data
        with pytest.raises(splitzip.FrameError, match="another object"):
            deserializer.deserialize(frame, dst, key(1))
    integration.register()
    for kwargs, message in (({"level": 3}, "no option 'level'"), ({"scheme": "w4"}, "no scheme 'w4'"), ({"max_workers": 0}, "max_workers must be"), ({"uint8": "bf16"}, "uint8 cannot be")):
        with pytest.raises(splitzip.ArgumentError, match=message):
            create_serde_processor(SerdeConfig("splitzip", kwargs))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_server_starts_and_is_healthy(tmp_path: pathlib.Path) -> None:
    port, http = free_port(), free_port()
    adapter = {
        "type": "plugin",
        "module_path": "splitzip.lmcache",
        "class_name": "FolderL2Adapter",
        "adapter_params": {"folder": str(tmp_path / "kv")},
        "serde": {"type": "splitzip"},
    }
    command = [str(pathlib.Path(sys.executable).parent / "lmcache"), "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--http-host", "127.0.0.1", "--http-port", str(http), "--l1-size-gb", "1", "--eviction-policy", "LRU", "--l2-adapter", json.dumps(adapter)]
    log = tmp_path / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "LMCACHE_TRACK_USAGE": "false"}, start_new_session=True)
    try:

        def get(path: str) -> dict[str, Any] | None:
            assert server.poll() is None, log.read_text()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{http}{path}", timeout=5) as answer:
                return dict(json.load(answer))
            return None

        wait_for(lambda: get("/healthcheck") is not None, "the server does not answer", 120)
        health = get("/healthcheck")
        assert health is not None and health.get("status") == "healthy", health
        status = json.dumps(get("/status"))
        assert "FolderL2Adapter" in status and '"serde_wrapped": true' in status, status
        assert (tmp_path / "kv").is_dir()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
