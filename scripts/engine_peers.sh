#!/usr/bin/env bash
# Our executor beside llama.cpp and PyTorch on this machine's CPU: prefill and decode of a 1 B model with random weights, in turn.
# Needs a C and C++ compiler and PyPI (about 6 GB of packages, 8 GB of models), all under FOLDER, which is kept for the next time.
# Arguments: FOLDER [ROUNDS].
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: $0 FOLDER [ROUNDS]" >&2; exit 2; }
cd "$(dirname "$0")/.."
mkdir -p "$1" && folder=$(cd "$1" && pwd)
cargo build --release --quiet --bin fulcrum
if [ ! -e "$folder/venv/complete" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet cmake ninja numpy gguf
  CMAKE_ARGS="-DGGML_NATIVE=ON" "$folder/venv/bin/pip" install --quiet --no-binary llama-cpp-python llama-cpp-python
  "$folder/venv/bin/pip" install --quiet torch transformers
  touch "$folder/venv/complete"
fi
"$folder/venv/bin/pip" freeze | grep -iE '^(llama.cpp.python|torch|transformers)==' >&2
exec python3 scripts/engine_peers/peers.py "${CARGO_TARGET_DIR:-target}/release/fulcrum" "$folder/venv/bin/python" "$folder" "${@:2}"
