#!/usr/bin/env bash
# Assembles our PTX for every GPU generation that `ptxas` of CUDA 13 and of CUDA 12.4 knows, with no GPU and no toolkit:
# both come from PyPI, into a folder that is removed again. No spills are allowed.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
assemble() { # package, then generations
  python3 -m venv "$tools/$1"
  "$tools/$1/bin/pip" install --quiet "$1==$2"
  local ptxas
  ptxas=$(find "$tools/$1" -name ptxas -type f | head -n 1)
  for generation in "${@:3}"; do
    local said
    said=$("$ptxas" -arch="$generation" --verbose --warning-as-error -o "$tools/out.cubin" kernels/src/cuda/kernels.ptx 2>&1) ||
      { printf '%s\n' "$said" >&2; echo "$1 $generation: refused" >&2; exit 1; }
    if grep -q ' [1-9][0-9]* bytes spill' <<<"$said"; then echo "$1 $generation: spills" >&2; exit 1; fi
    echo "$1 $2 $generation: $(grep -c 'Used' <<<"$said") kernels, $(grep -o 'Used [0-9]* registers' <<<"$said" | sort -k2n | tail -n 1)"
  done
}
assemble nvidia-cuda-nvcc-cu12 '12.4.*' sm_70 sm_75 sm_80 sm_86 sm_89 sm_90
assemble nvidia-cuda-nvcc '13.0.*' sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120
