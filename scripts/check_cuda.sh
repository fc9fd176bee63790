#!/usr/bin/env bash
# Compiles the kernels of kernels/src/cuda/device with NVRTC and assembles them with ptxas for every GPU generation, with no
# GPU and no toolkit: both come from PyPI, into the folder named as argument (kept for the next time), or one that is
# removed again. Prints each kernel's registers, shared memory and spills; warnings are errors. Where PyPI cannot be reached it
# says so in one line and exits with 3.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
  mkdir -p "$1" && tools=$(cd "$1" && pwd)
else
  tools=$(mktemp -d)
  trap 'rm -rf "$tools"' EXIT
fi
if [ ! -e "$tools/complete" ]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --retries 1 --timeout 20 \
    'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 2> "$tools/pip.log" || {
    echo "the kernels of a GPU were not compiled: $(tail -n 1 "$tools/pip.log")"
    exit 3
  }
  touch "$tools/complete"
fi
nvrtc=$(find "$tools" -name 'libnvrtc.so.13')
LD_LIBRARY_PATH=$(dirname "$nvrtc") "$tools/bin/python" - "$nvrtc" "$(find "$tools" -name ptxas -type f)" <<'PYTHON'
import ctypes, pathlib, re, subprocess, sys, tempfile

nvrtc, ptxas = ctypes.CDLL(sys.argv[1]), sys.argv[2]
folder = pathlib.Path("kernels/src/cuda/device")
SHARED = ("prelude", "packed", "blocks", "tile")
shared = "".join((folder / f"{name}.cu").read_text() for name in SHARED)
# Turing has no products of bf16 tiles: heads of 64 show that the plain way compiles.
PROGRAMS = [(path.stem, size, generation)
            for path in sorted(folder.glob("*.cu")) if path.stem not in SHARED
            for size in ([20, 64, 80, 128, 256] if path.stem in ("decode", "delta", "prefill") else [0])
            for generation in (75, 80, 86, 89, 90, 100)
            if not (path.stem == "prefill" and generation == 75 and size != 64)]


def compile(text, name, generation):
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None) == 0
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture=compute_{generation}".encode())
    failed = nvrtc.nvrtcCompileProgram(program, 1, options)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if failed or log.value.strip():
        sys.exit(f"{name} for {generation}: {log.value.decode()}")
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx.value


used, kernels = {}, 0
with tempfile.TemporaryDirectory() as scratch:
    for name, size, generation in PROGRAMS:
        text = (f"#define HEAD_DIM {size}\n" if size else "") + shared + (folder / f"{name}.cu").read_text()
        ptx = pathlib.Path(scratch, "kernel.ptx")
        ptx.write_bytes(compile(text, f"{name}.cu", generation))
        said = subprocess.run([ptxas, f"-arch=sm_{generation}", "--verbose", "-o", f"{scratch}/out", ptx], capture_output=True, text=True)
        if said.returncode:
            sys.exit(f"{name} for sm_{generation}: {said.stderr}")
        found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers(?:.*?(\d+) bytes smem)?", re.sub(r"\n(?!ptxas info\s+: Compiling)", " ", said.stderr))
        assert len(found) == ptx.read_text().rstrip("\0").count(".visible .entry"), (name, said.stderr)
        for kernel, *numbers in found:
            kernels += 1
            used.setdefault((kernel, size, tuple(int(n or 0) for n in numbers)), []).append(f"sm_{generation}")
for (kernel, size, (stack, spills, registers, smem)), generations in sorted(used.items()):
    print(f"{kernel}{f' of {size}' if size else ''}, {' '.join(generations)}: {registers} registers, {smem} bytes of shared memory, {stack} of stack, {spills} spilled")
print(f"{kernels} kernels compiled and assembled, without a warning")
PYTHON
