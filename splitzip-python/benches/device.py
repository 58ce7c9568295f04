"""Throughput and cost of the Python calls on a GPU, beside those of the Rust library.

``python device.py [--sizes 64,256,1024] [--json OUT] [--splitzip PATH]`` needs PyTorch, a GPU and the wheel. With the path of the command line
(``cargo build --release``) it runs ``splitzip bench`` on the same sizes and prints both. Throughput is raw bytes per second, the median of events on the device around one
call each; cost is the time that a call takes on the host while the device has other work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any, Callable

import splitzip

RUNS = 30
CALLS = 300


def device_seconds(call: Callable[[], Any]) -> float:
    import torch

    for _ in range(5):
        call()
    times = []
    for _ in range(RUNS):
        # Long enough that the host has queued the call before the device comes to it.
        torch.cuda._sleep(2_000_000)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def host_microseconds(call: Callable[[], Any]) -> float:
    """Of a call that only queues: in rounds that leave room in the device's queue."""
    import torch

    for _ in range(20):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(CALLS // 20):
        torch.cuda._sleep(20_000_000)
        start = time.perf_counter()
        for _ in range(20):
            call()
        times.append((time.perf_counter() - start) / 20 * 1e6)
        torch.cuda.synchronize()
    return statistics.median(times)


def elements(dtype: Any, count: int) -> Any:
    """Normal numbers: as many exponents as keys and values have, near enough. The rates of ``splitzip bench`` are of its own data."""
    import torch

    # Block by block: all of them as floats would take twice the memory.
    out = torch.empty(count, dtype=dtype, device="cuda:0")
    for block in out.split(1 << 24):
        block.copy_(torch.randn(block.shape, device="cuda:0"))
    return out.reshape(-1, 128)


def throughput(sizes: list[int]) -> list[dict[str, Any]]:
    import torch

    rows = []
    for dtype in ("bf16", "e4m3"):
        own = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}[dtype]
        for scheme in ("w4", "w3", "w2x3", "w2x2x3"):
            for mebibytes in sizes:
                if (dtype, scheme) == ("e4m3", "w4"):
                    continue
                tensor = elements(own, (mebibytes << 20) // own.itemsize)
                codebook = splitzip.calibrate(tensor[:1024]) if scheme == "w4" else None
                codec = splitzip.Codec(
                    (dtype, tensor.shape), scheme=scheme, codebook=codebook, checksums="none", device="cuda:0"
                )
                memory, out = codec.empty_frame(), torch.empty_like(tensor)
                frame = codec.encode(tensor, out=memory)
                ratio = frame.ratio
                encode = device_seconds(lambda: codec.encode(tensor, out=memory))
                decode = device_seconds(lambda: codec.decode(frame, out=out))
                copy = device_seconds(lambda: out.view(torch.uint8).copy_(tensor.view(torch.uint8)))
                codec.decode(frame, out=out)
                codec.check()
                same = bool(torch.equal(out.view(torch.uint8), tensor.view(torch.uint8)))
                if not same:
                    raise SystemExit(f"{dtype} {scheme} {mebibytes} MiB: decoded bits differ; no number of it means anything")
                rate = lambda seconds: round(tensor.nbytes / seconds / 1e9, 1)  # noqa: E731
                rows.append(
                    {
                        "dtype": dtype,
                        "scheme": scheme,
                        "mebibytes": mebibytes,
                        "ratio": round(ratio, 4),
                        "encode_gb_s": rate(encode),
                        "decode_gb_s": rate(decode),
                        "copy_gb_s": rate(copy),
                    }
                )
                print("{dtype:5} {scheme:7} {mebibytes:5} MiB  ratio {ratio:.3f}  encode {encode_gb_s:7.1f}  decode {decode_gb_s:7.1f}  copy {copy_gb_s:7.1f} GB/s".format(**rows[-1]), flush=True)
                del tensor, memory, out, frame, codec
                torch.cuda.empty_cache()
    return rows


def overhead() -> dict[str, float]:
    import torch

    tensor = elements(torch.bfloat16, 1 << 16)
    many = [elements(torch.bfloat16, 1 << 12) for _ in range(64)]
    codec = splitzip.Codec(("bf16", tensor.shape), checksums="none", device="cuda:0")
    batch = splitzip.Codec([("bf16", one.shape) for one in many], checksums="none", device="cuda:0")
    memory, out = codec.empty_frame(), torch.empty_like(tensor)
    batch_memory, outs = batch.empty_frame(), [torch.empty_like(one) for one in many]
    frame, batch_frame = codec.encode(tensor, out=memory), batch.encode(many, out=batch_memory)
    stream = torch.cuda.current_stream().cuda_stream
    calls: dict[str, Callable[[], Any]] = {
        "Codec.encode(out=)": lambda: codec.encode(tensor, out=memory),
        "Codec.encode(out=, stream=)": lambda: codec.encode(tensor, out=memory, stream=stream),
        "Codec.decode(out=)": lambda: codec.decode(frame, out=out),
        "Codec.encode, 64 tensors": lambda: batch.encode(many, out=batch_memory),
        "Codec.decode, 64 tensors": lambda: batch.decode(batch_frame, out=outs),
        "compress": lambda: splitzip.compress(tensor, checksums="none"),
        "decompress(check=False)": lambda: splitzip.decompress(frame, check=False),
        "torch copy_": lambda: out.copy_(tensor),
    }
    found = {}
    for name, call in calls.items():
        found[name] = round(host_microseconds(call), 2)
        print(f"{name:30} {found[name]:8.2f} microseconds a call", flush=True)
    return found


def rust(binary: str, sizes: list[int]) -> Any:
    command = [binary, "bench", "--device", "cuda:0", "--json", "--dtypes", "bf16,e4m3", "--bases", "chunk"]
    command += ["--sizes", ",".join(f"{size}MiB" for size in sizes)]
    print("$ " + " ".join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"splitzip bench failed: {done.stderr}")
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="64,256,512", help="MiB of raw bytes")
    parser.add_argument("--json", help="write all numbers into this file")
    parser.add_argument("--splitzip", help="the command line, to run `splitzip bench` beside it")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    try:
        import torch
    except ImportError:
        print("SKIPPED: PyTorch is not installed, so nothing was measured")
        return 1
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch sees no CUDA device, so nothing was measured")
        return 1
    about = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "splitzip": splitzip.__version__}
    print(about)
    result: dict[str, Any] = {"about": about, "throughput": throughput(sizes), "microseconds": overhead()}
    if options.splitzip:
        result["rust"] = rust(options.splitzip, sizes)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
