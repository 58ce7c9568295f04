"""Files of objects: there after a restart, whole or not at all, never of another key, and no more than may be."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import shutil
import threading
import time

import pytest
import splitzip
from splitzip._folder import FolderFullError, FolderStore


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_store_read_delete(tmp_path: pathlib.Path) -> None:
    store = FolderStore(tmp_path / "new" / "folder")
    assert b"a" not in store and store.nbytes == 0
    size, evicted = store.put(b"a", b"one ", bytearray(b"object"))
    assert size == 28 + 1 + 10 and evicted == [] and store.nbytes == size and len(store) == 1
    assert store.put(b"a", b"another") == (0, [])
    assert store.read(b"a") == b"one object"
    memory = bytearray(12)
    assert store.read_into(b"a", memory) == 10 and memory == b"one object\0\0"
    with pytest.raises(splitzip.ArgumentError, match="has 10 bytes, and the memory for it 9"):
        store.read_into(b"a", bytearray(9))
    assert b"a" in store
    with pytest.raises(KeyError):
        store.read(b"b")
    assert store.delete(b"a") == size and store.delete(b"a") is None and store.nbytes == 0 and files(tmp_path) == []
    store.put(b"empty")
    assert store.read(b"empty") == b""
    store.clear()
    assert len(store) == 0 and files(tmp_path) == []


def test_it_survives_a_restart(tmp_path: pathlib.Path) -> None:
    store = FolderStore(tmp_path, sync=True)
    for number in range(20):
        store.put(b"key %d" % number, b"x" * number)
    again = FolderStore(tmp_path)
    assert sorted(again.items()) == sorted(store.items()) and again.nbytes == store.nbytes
    assert all(again.read(b"key %d" % number) == b"x" * number for number in range(20))


def test_no_key_leads_out_of_the_folder(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "inside"
    store = FolderStore(folder)
    keys = [b"../outside", b"/etc/passwd", b"..", b".", b"a/b", b"a\0b", b"\n", "ключ".encode(), b"x" * 65536]
    for key in keys:
        store.put(key, key)
    assert all(store.read(key) == key for key in keys)
    assert files(tmp_path) == files(folder) and len(files(folder)) == len(keys)
    for bad in (b"", b"x" * 65537, "text", None):
        with pytest.raises(splitzip.ArgumentError, match="a key is 1 to 65536 bytes"):
            store.put(bad, b"x")  # type: ignore[arg-type]


def test_damaged_files_are_misses(tmp_path: pathlib.Path) -> None:
    """Truncated, lengthened, with a byte of the start changed, swapped: an error, and gone."""
    payload = b"object" * 100

    def damage(how: str, path: pathlib.Path) -> None:
        data = bytearray(path.read_bytes())
        if how.isdecimal():
            data[int(how)] ^= 4
        else:
            data = {"empty": bytearray(), "half": data[: len(data) // 2], "longer": data + b"x", "short": data[:-1]}[how]
        path.write_bytes(data)

    for how in ["empty", "half", "longer", "short", *map(str, range(28 + 3))]:
        for restart in (False, True):
            store = FolderStore(tmp_path)
            store.put(b"key", payload)
            (path,) = files(tmp_path)
            damage(how, path)
            if restart:
                store = FolderStore(tmp_path)
                assert len(store) == 0 and store.nbytes == 0
                with pytest.raises(KeyError):
                    store.read(b"key")
            else:
                with pytest.raises((splitzip.CorruptError, splitzip.TruncatedError)):
                    store.read_into(b"key", bytearray(1000))
            assert files(tmp_path) == [] and b"key" not in store
            assert store.put(b"key", payload)[0] > 0 and store.read(b"key") == payload
            store.clear()
    store = FolderStore(tmp_path)
    store.put(b"one", b"1" * 10)
    store.put(b"two", b"2" * 10)
    one, two = files(tmp_path)
    shutil.copy(one, tmp_path / "kept")
    shutil.copy(two, one)
    shutil.copy(tmp_path / "kept", two)
    for key in (b"one", b"two"):
        with pytest.raises(splitzip.CorruptError, match="another object"):
            store.read(key)
        assert key not in store


def test_what_was_not_used_for_longest_goes_first(tmp_path: pathlib.Path) -> None:
    head, events = 28 + 1, []
    store = FolderStore(tmp_path, max_bytes=3 * (head + 100))
    for key in (b"a", b"b", b"c"):
        store.put(key, bytes(100))
    store.read(b"a")
    events += store.put(b"d", bytes(100))[1]
    assert events == [(b"b", head + 100)] and b"b" not in store and len(files(tmp_path)) == 3
    store.touch([b"c"])
    assert store.put(b"e", bytes(100))[1] == [(b"a", head + 100)]
    # One that is in use stays.
    store.pin(b"d")
    store.pin(b"d")
    store.unpin(b"d")
    assert store.put(b"f", bytes(200))[1] == [(b"c", head + 100), (b"e", head + 100)]
    store.pin(b"f")
    with pytest.raises(FolderFullError, match="is in use"):
        store.put(b"g", bytes(100))
    assert store.nbytes <= store.max_bytes and b"g" not in store
    store.unpin(b"d")
    store.put(b"g", bytes(100))
    assert b"d" not in store
    with pytest.raises(FolderFullError, match="at most"):
        store.put(b"large", bytes(1000))
    # A restart keeps the order of use.
    again = FolderStore(tmp_path, max_bytes=store.max_bytes)
    assert [key for key, _ in again.items()] == [b"f", b"g"]


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk half-way leaves no file and no wrong count."""
    store = FolderStore(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        store.put(b"a", b"x")
    monkeypatch.undo()
    assert files(tmp_path) == [] and store.nbytes == 0
    assert store.put(b"a", b"x")[0] > 0
    for bad in ("", 5, None):
        with pytest.raises(splitzip.ArgumentError, match="the folder must be"):
            FolderStore(bad)  # type: ignore[arg-type]
    with pytest.raises(splitzip.ArgumentError, match="max_bytes must be"):
        FolderStore(tmp_path, max_bytes=-1)


def test_what_others_have_left(tmp_path: pathlib.Path) -> None:
    """Temporary files of processes that are gone are removed, fresh ones are left alone, and files that are none of ours as well."""
    store = FolderStore(tmp_path)
    store.put(b"a", b"x")
    folder = files(tmp_path)[0].parent
    old, fresh, other = folder / "old.1.2.tmp", folder / "fresh.1.2.tmp", tmp_path / "README"
    for path in (old, fresh, other):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert len(FolderStore(tmp_path)) == 1
    assert not old.exists() and fresh.exists() and other.exists()


def _hammer(folder: str, seed: int, rounds: int) -> int:
    store, hits = FolderStore(folder, max_bytes=40_000), 0
    for number in range(rounds):
        key = b"%d" % ((number * 7 + seed) % 50)
        payload = key * 500
        try:
            if number % 11 == 0:
                store.delete(key)
            elif number % 2:
                store.put(key, payload)
            else:
                hits += store.read(key) == payload or exit_wrong()
        except (KeyError, FolderFullError):
            continue
    return hits


def exit_wrong() -> bool:
    raise AssertionError("an object was not what was stored")


def test_many_threads_and_processes(tmp_path: pathlib.Path) -> None:
    """Readers see a whole object or none, while others write and delete it."""
    folder, wrong = str(tmp_path / "shared"), []

    def run(store: FolderStore, seed: int) -> None:
        for number in range(300):
            key = b"%d" % ((number * 7 + seed) % 50)
            try:
                if number % 13 == 0:
                    store.delete(key)
                elif number % 2:
                    store.put(key, key * 500)
                elif store.read(key) != key * 500:
                    wrong.append(key)
            except (KeyError, FolderFullError):
                continue
            except Exception as error:
                wrong.append(error)

    shared = FolderStore(folder, max_bytes=40_000)
    threads = [threading.Thread(target=run, args=(shared, seed)) for seed in range(4)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.starmap_async(_hammer, [(folder, seed, 400) for seed in range(4)])
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(results.get(timeout=120)) > 0
    assert not wrong, wrong[0]
    left = FolderStore(folder)
    assert all(left.read(key) == key * 500 for key, _ in left.items())
    assert not list(pathlib.Path(folder).rglob("*.tmp"))
