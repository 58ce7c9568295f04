"""Transfers between two processes over the loopback, by the engines that are installed: NIXL and Mooncake.

`cargo xtask transfer` installs both and runs this with ``SPLITZIP_REQUIRE_TRANSFER=1``, where what is missing fails. Otherwise it is skipped, loudly. Without pytest,
``python test_transfer_engines.py serve|send ...`` are the two processes."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import splitzip
from splitzip import transfer

TOKENS, LAYERS = 512, 12
FORM = [("fp16", (TOKENS, 64)), ("fp16", (TOKENS, 64))]
TIMEOUT = 8.0
ENVIRONMENT = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "NIXL_LOG_LEVEL": "ERROR", "MC_FORCE_TCP": "true", "MC_TRANSFER_TIMEOUT": "6", "GLOG_minloglevel": "2"}
ENGINES = {"nixl": transfer.NixlEngine, "mooncake": transfer.MooncakeEngine}


def layer_of(number: int) -> list[np.ndarray]:
    return [np.random.default_rng(2 * number + part).normal(size=(TOKENS, 64)).astype(np.float16) for part in range(2)]


def serve(engine: str, address: str, transfers: int, slow: float) -> None:
    """Receives, and says as JSON what came, a line for each transfer."""
    options: dict[str, Any] = {"layout_id": 7} if transfers == 0 else {}
    with transfer.Receiver(ENGINES[engine](), splitzip.Codec(FORM).max_nbytes, slots=2, timeout=TIMEOUT, **options) as receiver:
        whole = pathlib.Path(address)
        whole.with_suffix(".new").write_bytes(receiver.address)
        whole.with_suffix(".new").rename(whole)
        for _ in range(max(transfers, 1)):
            result: dict[str, Any] = {"layers": 0}
            try:
                incoming = receiver.accept(time_limit=4 * TIMEOUT)
                for layer, tensors in incoming.receive(framework="numpy"):
                    for tensor, expected in zip(tensors, layer_of(layer), strict=True):
                        assert np.array_equal(tensor.view(np.uint16), expected.view(np.uint16))
                    result["layers"] += 1
                    print(json.dumps({"landed": layer}), flush=True)
                    time.sleep(slow)
                result["wire"], result["ignored"] = incoming.wire_nbytes, receiver.counters
            except transfer.TransferError as error:
                result["error"] = type(error).__name__
            print(json.dumps(result), flush=True)
            if "error" in result:
                break
    # Engines that lost a peer take their time to end, and there is nothing left that could be lost.
    sys.stdout.flush()
    os._exit(0)


def send(engine: str, address: str, schemes: list[str], slow: float) -> None:
    """Sends, and says as JSON what went."""
    result: dict[str, Any] = {}
    try:
        with transfer.Sender(ENGINES[engine](), pathlib.Path(address).read_bytes(), timeout=TIMEOUT) as sender:
            for scheme in schemes:
                with sender.transfer(FORM, layers=LAYERS, scheme=scheme) as outgoing:
                    for layer in range(LAYERS):
                        outgoing.send(layer, layer_of(layer))
                        time.sleep(slow)
                result[scheme] = outgoing.wire_nbytes
    except transfer.TransferError as error:
        result["error"] = type(error).__name__
        result["message"] = str(error)
    print(json.dumps(result), flush=True)
    os._exit(0)


if __name__ == "__main__":
    what, name, where, third, fourth = sys.argv[1:]
    if what == "serve":
        serve(name, where, int(third), float(fourth))
    send(name, where, third.split(","), float(fourth))

import pytest  # noqa: E402


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    module = {"nixl": transfer._nixl._api, "mooncake": lambda: __import__("mooncake.engine")}[request.param]
    try:
        module()
    except (ImportError, splitzip.UnsupportedError) as error:
        message = f"{request.param} is not there, so NOTHING was sent over it (`cargo xtask transfer` installs it): {error}"
        if os.environ.get("SPLITZIP_REQUIRE_TRANSFER"):
            pytest.fail(message)
        pytest.skip(f"SKIPPED: {message}")
    return str(request.param)


class Process:
    """One of the two."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT})

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says; engines write lines of their own in between."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                yield json.loads(line)

    def result(self) -> list[dict[str, Any]]:
        found = list(self.lines())
        assert self.process.wait(TIMEOUT) == 0
        return found

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)


@pytest.fixture
def start() -> Iterator[Any]:
    started: list[Process] = []

    def make(*arguments: Any) -> Process:
        started.append(Process(*(str(argument) for argument in arguments)))
        return started[-1]

    yield make
    for one in started:
        one.process.kill()
        one.process.communicate()


def serving(start: Any, path: pathlib.Path, engine: str, transfers: int, slow: float = 0) -> Process:
    process = start("serve", engine, path, transfers, slow)
    for _ in range(300):
        if path.exists():
            return process
        time.sleep(0.1)
    raise AssertionError("the receiver did not start")


def test_layers_arrive_bit_for_bit(engine: str, start: Any, tmp_path: pathlib.Path) -> None:
    schemes = ["raw", "w2x3", "w4", "w2x2x3"]
    far = serving(start, tmp_path / "address", engine, len(schemes))
    (sent,) = start("send", engine, tmp_path / "address", ",".join(schemes), 0).result()
    assert "error" not in sent, sent
    received = [line for line in far.result() if "layers" in line]
    assert [one["layers"] for one in received] == [LAYERS] * len(schemes)
    assert [one["wire"] for one in received] == [sent[scheme] for scheme in schemes]
    assert received[-1]["ignored"] == {}
    raw = LAYERS * 2 * TOKENS * 64 * 2
    assert sent["raw"] >= raw > 1.1 * sent["w2x3"]


def test_another_layout_is_refused(engine: str, start: Any, tmp_path: pathlib.Path) -> None:
    serving(start, tmp_path / "address", engine, 0)
    (sent,) = start("send", engine, tmp_path / "address", "w2x3", 0).result()
    assert sent["error"] == "RefusedError" and "its layout is 0x0, and this side takes 0x7 only" in sent["message"], sent


def test_a_receiver_that_is_killed_is_an_error(engine: str, start: Any, tmp_path: pathlib.Path) -> None:
    far = serving(start, tmp_path / "address", engine, 1, 0.1)
    near = start("send", engine, tmp_path / "address", "w2x3", 0.1)
    assert next(far.lines()) == {"landed": 0}
    far.kill()
    began = time.monotonic()
    (sent,) = near.result()
    assert sent["error"] in ("PeerLostError", "EngineError"), sent
    # The engine says so; nobody waited for the silence to become too long.
    assert time.monotonic() - began < TIMEOUT


def test_a_sender_that_is_killed_is_an_error(engine: str, start: Any, tmp_path: pathlib.Path) -> None:
    far = serving(start, tmp_path / "address", engine, 1, 0)
    near = start("send", engine, tmp_path / "address", "w2x3", 0.2)
    lines = far.lines()
    assert next(lines) == {"landed": 0}
    near.kill()
    began = time.monotonic()
    *_, last = lines
    assert last["error"] in ("PeerLostError", "EngineError", "TransferTimeoutError"), last
    assert time.monotonic() - began < 2 * TIMEOUT


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_a_process_that_was_stopped_is_an_error(engine: str, start: Any, tmp_path: pathlib.Path, who: str) -> None:
    far = serving(start, tmp_path / "address", engine, 1, 0.05)
    near = start("send", engine, tmp_path / "address", "w2x3", 0.2)
    lines = far.lines()
    assert next(lines) == {"landed": 0}
    stopped = near if who == "sender" else far
    stopped.kill(signal.SIGSTOP)
    last = list(lines if who == "sender" else near.lines())[-1]
    assert last["error"] in ("PeerLostError", "EngineError", "TransferTimeoutError"), last
