#!/usr/bin/env bash
# Our executor beside llama.cpp on the same GGUF files: a 1 B model with random weights in several formats, in turn.
# Needs a C and C++ compiler and PyPI, and 9 GB under FOLDER, which is kept for the next time.
# llama-cpp-python 0.3.36 ends with a segmentation fault in its AMX products, so it is built without them: SKIP_AMX=0 keeps them.
# Arguments: FOLDER [ROUNDS] [--cpu-time].
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: $0 FOLDER [ROUNDS] [--cpu-time]" >&2; exit 2; }
cd "$(dirname "$0")/.."
mkdir -p "$1" && folder=$(cd "$1" && pwd)
cargo build --release --quiet --bin fulcrum
cargo build --release --quiet -p fulcrum-executor --example file_speed
target=${CARGO_TARGET_DIR:-target}/release
[ -e "$folder/model" ] || "$target/fulcrum" model init fulcrum-1b -o "$folder/model" > /dev/null
if [ ! -e "$folder/venv-files/complete" ]; then
  without=$([ "${SKIP_AMX:-1}" = 0 ] || echo "-DCMAKE_C_FLAGS=-mno-amx-int8 -DCMAKE_CXX_FLAGS=-mno-amx-int8")
  python3 -m venv "$folder/venv-files"
  "$folder/venv-files/bin/pip" install --quiet cmake ninja numpy gguf
  CMAKE_ARGS="-DGGML_NATIVE=ON $without" "$folder/venv-files/bin/pip" install --quiet --no-cache-dir --no-binary llama-cpp-python llama-cpp-python
  touch "$folder/venv-files/complete"
fi
exec python3 scripts/engine_peers/files.py "$target/examples/file_speed" "$folder/venv-files/bin/python" "$folder" "${@:2}"
