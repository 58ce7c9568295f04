"""Time until the last byte is decoded on the other side: compressed and raw, by turns, over a transfer engine between two processes.

``python transfer.py [--engine nixl] [--device cpu] [--kv KV.safetensors] [--size 1GiB] [--links none,10,25,100] [--json OUT]`` needs the wheel, NumPy, and NIXL or
Mooncake (``pip install --no-deps nixl nixl-cu12``; ``pip install mooncake-transfer-engine-non-cuda``, with ``libibverbs1``); for a device PyTorch. Both processes are
on this machine, and the bytes go over the loopback. A link of so many Gbit/s is that with a token bucket in front (``splitzip.transfer.ShapedEngine``); ``none`` is without one.

Every transfer starts with all tensors ready on the sender, and is verified on the receiver after its time was taken. ``plain`` is the engine alone, without SplitZip: writes from the
memory of the tensors into the memory of the outputs (where the engine can register that); ``raw`` is the same path as the schemes without coding."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Iterator

import numpy as np

import splitzip
from splitzip import transfer

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/smollm2_prose_160.safetensors"
ENVIRONMENT = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "NIXL_LOG_LEVEL": "ERROR", "MC_FORCE_TCP": "true", "GLOG_minloglevel": "2"}
# A link bounds a raw transfer that is as fast as nine tenths of it.
BOUND = 0.9


def engine_of(options: argparse.Namespace) -> Any:
    if options.engine == "mooncake":
        return transfer.MooncakeEngine()
    return transfer.NixlEngine(progress_thread=options.progress_thread == "yes")


class Kv:
    """Real keys and values, repeated until they are as large as they should be."""

    def __init__(self, path: str, size: int, layers: int, device: str) -> None:
        data = np.fromfile(path, np.uint8)
        start = 8 + int(data[:8].view("<u8")[0])
        header = json.loads(bytes(data[8:start]))
        tensors: dict[str, Any] = {}
        for name, entry in header.items():
            if name != "__metadata__":
                assert entry["dtype"] == "BF16", f"{name} is {entry['dtype']}, and this takes BF16"
                begin, end = entry["data_offsets"]
                tensors[name] = data[start + begin : start + end].view(np.uint16).reshape(entry["shape"])
        found = len(tensors) // 2
        heads, tokens, dim = tensors["layers.0.k"].shape
        repeats = max(1, round(size / (layers * 2 * tensors["layers.0.k"].nbytes)))
        self.shape = (heads, tokens * repeats, dim)
        self.layers: list[list[Any]] = []
        for layer in range(layers):
            pair = [np.tile(tensors[f"layers.{layer % found}.{part}"], (1, repeats, 1)) for part in "kv"]
            self.layers.append([on_device(one, device) for one in pair])
        self.nbytes = layers * 2 * heads * tokens * repeats * dim * 2
        self.form = [("bf16", self.shape)] * 2
        self.device = device

    def empty(self) -> list[list[Any]]:
        if self.device != "cpu":
            import torch

            return [[torch.empty_like(one) for one in layer] for layer in self.layers]
        # Written once, so that no page is new while the time runs.
        return [[np.zeros_like(one) for one in layer] for layer in self.layers]

    def same(self, outputs: list[list[Any]]) -> bool:
        pairs = [(one, other) for layer, out in zip(self.layers, outputs) for one, other in zip(layer, out)]
        if self.device != "cpu":
            import torch

            return all(torch.equal(one.view(torch.int16), other.view(torch.int16)) for one, other in pairs)
        return all(np.array_equal(one, other) for one, other in pairs)


def on_device(array: np.ndarray, device: str) -> Any:
    if device == "cpu":
        return array
    import torch

    return torch.from_numpy(array.view(np.int16)).to(device).view(torch.bfloat16)


def clear(outputs: list[list[Any]]) -> None:
    """What is there from the last time must not pass for what was received."""
    for layer in outputs:
        for one in layer:
            if isinstance(one, np.ndarray):
                one.fill(0)
            else:
                one.zero_()


def plain_memory(tensor: Any) -> transfer.Memory:
    if isinstance(tensor, np.ndarray):
        return transfer.Memory(tensor.ctypes.data, tensor.nbytes)
    return transfer.Memory(tensor.data_ptr(), tensor.nbytes, tensor.device.index)


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def send(options: argparse.Namespace) -> None:
    """The other process: does what each line of its input says."""
    kv = Kv(options.kv, options.size, options.layers, options.device)
    engine = transfer.ShapedEngine(engine_of(options), None)
    sender = transfer.Sender(engine, json.loads(sys.stdin.readline())["address"].encode(), device=options.device, buffers=options.buffers)
    plain: Any = None
    sources: list[transfer.Memory] = []
    tell(ready=True)
    for line in sys.stdin:
        job = json.loads(line)
        gigabits = None if job["link"] == "none" else float(job["link"])
        if job["scheme"] == "plain":
            if plain is None:
                plain = transfer.ShapedEngine(engine_of(options), None)
                sources = [plain_memory(one) for layer in kv.layers for one in layer]
                for memory in sources:
                    plain.register(memory)
            plain.gigabits = gigabits
            peer = plain.connect(job["metadata"].encode("latin-1"))
            began = time.monotonic()
            waiting: list[Any] = []
            targets = [transfer.Memory(*memory) for memory in job["targets"]]
            for number, (source, target) in enumerate(zip(sources, targets)):
                waiting.append(plain.write(peer, source, target, b"layer" if number % 2 else None))
                while len(waiting) >= 2 * options.buffers:
                    waiting = [write for write in waiting if not plain.done(write)]
                    time.sleep(20e-6)
            while waiting:
                waiting = [write for write in waiting if not plain.done(write)]
                time.sleep(20e-6)
            plain.disconnect(peer)
            tell(began=began, wire=kv.nbytes, encode=0.0)
            continue
        engine.gigabits = gigabits
        checksums = "none" if job["scheme"] == "raw" else "tensor"
        began = time.monotonic()
        with sender.transfer(kv.form, layers=options.layers, scheme=job["scheme"], checksums=checksums) as outgoing:
            for number, tensors in enumerate(kv.layers):
                outgoing.send(number, tensors)
        tell(began=began, wire=outgoing.wire_nbytes, encode=outgoing.encode_seconds)
    sys.stdout.flush()
    os._exit(0)


class Receiving:
    """This process, and the one that it has started."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.kv = Kv(options.kv, options.size, options.layers, options.device)
        self.outputs = self.kv.empty()
        self.engine = engine_of(options)
        self.receiver = transfer.Receiver(self.engine, splitzip.Codec(self.kv.form).max_nbytes, slots=options.buffers + 1, device=options.device)
        self.plain: Any = None
        command = [sys.executable, __file__, "--send"] + [f"--{name}={getattr(options, name.replace('-', '_'))}" for name in ("engine", "device", "kv", "size", "layers", "buffers", "progress-thread")]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ask(address=self.receiver.address.decode())
        self._answer()

    def _ask(self, **fields: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(fields) + "\n")
        self.child.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            # Engines write lines of their own.
            if line.startswith("{"):
                return dict(json.loads(line))
        raise SystemExit("the sending process ended; its messages are above")

    def transfer(self, scheme: str, link: str) -> dict[str, float]:
        clear(self.outputs)
        if scheme == "plain":
            times = self._plain(link)
        else:
            self._ask(scheme=scheme, link=link)
            incoming = self.receiver.accept(time_limit=120)
            times = [time.monotonic() for _ in incoming.receive(out=self.outputs)]
        sent = self._answer()
        if not self.kv.same(self.outputs):
            raise SystemExit(f"{scheme} over {link}: what arrived is not what was sent; no number of it means anything")
        return {"seconds": times[-1] - sent["began"], "first_layer": times[0] - sent["began"], "wire": sent["wire"]}

    def _plain(self, link: str) -> list[float]:
        if self.plain is None:
            self.plain = engine_of(self.options)
            self.targets = [plain_memory(one) for layer in self.outputs for one in layer]
            for memory in self.targets:
                self.plain.register(memory)
        self._ask(scheme="plain", link=link, metadata=self.plain.metadata().decode("latin-1"), targets=self.targets)
        times: list[float] = []
        while len(times) < self.options.layers:
            times += [time.monotonic() for _ in self.plain.messages()]
            time.sleep(20e-6)
        return times

    def end(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(30)


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    receiving = Receiving(options)
    schemes = options.schemes.split(",")
    if options.device != "cpu" and not receiving.engine.device_memory and "plain" in schemes:
        print("plain: this engine cannot register memory of the device, so there is no such row", flush=True)
        schemes.remove("plain")
    nbytes = receiving.kv.nbytes
    print(f"{nbytes} bytes in {options.layers} layers of {receiving.kv.shape}, {options.runs} runs, medians", flush=True)
    print(f"{'link':>6} {'scheme':8} {'ratio':>6} {'last byte ms':>13} {'first layer ms':>15} {'raw GB/s':>9} {'times raw':>10} {'bar':>6}", flush=True)
    for link in options.links.split(","):
        runs: dict[str, list[dict[str, float]]] = {scheme: [] for scheme in schemes}
        for run in range(options.runs + 1):
            for scheme in schemes:
                found = receiving.transfer(scheme, link)
                # The first turn makes buffers and connections.
                if run > 0:
                    runs[scheme].append(found)
        seconds = {scheme: statistics.median(one["seconds"] for one in found) for scheme, found in runs.items()}
        speed = nbytes / seconds["raw"] / 1e9 * 8 if "raw" in seconds else 0.0
        bound = link != "none" and speed >= BOUND * float(link)
        for scheme in schemes:
            wire = runs[scheme][0]["wire"]
            row: dict[str, Any] = {
                "engine": options.engine,
                "device": options.device,
                "link": link,
                "scheme": scheme,
                "ratio": round(nbytes / wire, 4),
                "seconds": seconds[scheme],
                "all_seconds": [one["seconds"] for one in runs[scheme]],
                "first_layer_seconds": statistics.median(one["first_layer"] for one in runs[scheme]),
                "raw_gb_s": nbytes / seconds[scheme] / 1e9,
                "wire_bytes": int(wire),
            }
            if "raw" in seconds:
                row["times_raw"] = seconds["raw"] / seconds[scheme]
                row["raw_bound_by_link"] = bound
                if bound and scheme not in ("raw", "plain"):
                    row["bar"] = 0.95 * nbytes / wire
                    row["met"] = row["times_raw"] >= row["bar"]
            bar = f"{row['bar']:.3f}{'' if row['met'] else ' no'}" if "bar" in row else "-"
            times = f"{row['times_raw']:.3f}" if "times_raw" in row else "-"
            print(
                f"{link:>6} {scheme:8} {row['ratio']:6.3f} {1e3 * row['seconds']:13.2f} {1e3 * row['first_layer_seconds']:15.2f} {row['raw_gb_s']:9.3f} {times:>10} {bar:>6}",
                flush=True,
            )
            yield row
    receiving.end()


def bytes_of(text: str) -> int:
    for suffix, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if text.endswith(suffix):
            return int(float(text[: -len(suffix)]) * factor)
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", choices=["nixl", "mooncake"], default="nixl")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0, on both sides")
    parser.add_argument("--kv", default=str(FIXTURE), help="a safetensors file with layers.N.k and layers.N.v in BF16")
    parser.add_argument("--size", type=bytes_of, default=bytes_of("256MiB"), help="raw bytes, as 4GiB")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--schemes", default="plain,raw,w4,w3,w2x3,w2x2x3")
    parser.add_argument("--links", default="none,10,25,100", help="Gbit/s; none is the engine's own speed")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--buffers", type=int, default=3, help="frames on their way")
    parser.add_argument("--progress-thread", choices=["yes", "no"], default="no", help="whether NIXL has a thread of its own")
    parser.add_argument("--json", help="write all numbers into this file")
    parser.add_argument("--send", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device != "cpu":
        import torch

        # Where there is a GPU, NIXL wants its UCX to know of its memory, also for memory of the host.
        os.environ.setdefault("UCX_TLS", "tcp,cuda_copy")

        if not torch.cuda.is_available():
            print("SKIPPED: PyTorch sees no CUDA device, so nothing was measured")
            return 1
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if options.send:
        send(options)
    rows = list(measure(options))
    missed = [row for row in rows if row.get("met") is False]
    print(f"bar: 0.95 x ratio wherever raw is bound by the link (at least {BOUND} of its speed): {sum('met' in row for row in rows)} rows, {len(missed)} below", flush=True)
    if options.json:
        about = {"splitzip": splitzip.__version__, "size": options.size, "layers": options.layers, "runs": options.runs, "cores": os.cpu_count()}
        pathlib.Path(options.json).write_text(json.dumps({"about": about, "rows": rows}, indent=1))
    sys.stdout.flush()
    # Engines take their time to end.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
