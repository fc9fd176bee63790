#!/usr/bin/env python3
"""`fulcrum serve` beside llama-cpp-python's server: the same GGUF file, the same requests, in turn.

    cargo build --release --bin fulcrum && scripts/serve_peers.py FOLDER [REQUESTS [ROUNDS]]

Needs PyPI and a C and C++ compiler the first time. FOLDER is kept: a 1 B model with random weights as Q8_0, and the
environment that `scripts/file_peers.sh` makes. Each server answers REQUESTS (48) from 1 client, then from 16, ROUNDS (3)
times; printed are the medians of output tokens a second and ours divided by the other's. Both answer greedily, so an
answer has as many tokens as were asked for.
"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = pathlib.Path(sys.argv[1]).resolve()
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 48
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
FULCRUM = ROOT / "target/release/fulcrum"
PYTHON = FOLDER / "venv-files/bin/python"
CLIENTS = (1, 16)
FILE = "q8_0.gguf"
SCENARIO = f"""machine: this
model: {FILE}
dtype: {{kv: bf16}}
workload: {{batch: {max(CLIENTS)}, prompt_tokens: 384, output_tokens: 128}}
"""


def prepare():
    """The model's file, a plan, and the packages of both servers and of the clients."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "model").exists():
        subprocess.run([FULCRUM, "model", "init", "fulcrum-1b", "-o", FOLDER / "model"], check=True, stdout=subprocess.DEVNULL)
    if not (FOLDER / "venv-files/complete").exists():
        sys.exit(f"{FOLDER}/venv-files is missing: run scripts/file_peers.sh {FOLDER} first, which builds llama.cpp")
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "openai", "llama-cpp-python[server]"], check=True)
    script = ROOT / "scripts/engine_peers/with_llama_cpp.py"
    subprocess.run([PYTHON, script, FOLDER, "q8_0", "0", "0"], check=True)
    (FOLDER / "serve.yaml").write_text(SCENARIO)
    (FOLDER / "serve-plan.yaml").unlink(missing_ok=True)
    subprocess.run([FULCRUM, "plan", "serve.yaml", "-o", "serve-plan.yaml"], cwd=FOLDER, check=True, stdout=subprocess.DEVNULL)


def rates(command, port):
    """Starts a server, and returns the output tokens a second for each number of clients."""
    url, found = f"http://127.0.0.1:{port}/v1", []
    with open(FOLDER / f"server-{port}.log", "w") as log:
        server = subprocess.Popen(command, cwd=FOLDER, stdout=log, stderr=log)
    try:
        wait(url, server)
        for clients in CLIENTS:
            load = [PYTHON, ROOT / "scripts/serve_clients.py", url, "--clients", clients, "--requests", REQUESTS,
                    "--cancel", 0, "--temperature", 0, "--prompt-words", 40, "--max-tokens", 64, "--no-ignore-eos"]
            said = subprocess.run([str(word) for word in load], check=True, capture_output=True, text=True).stdout
            found.append(float(re.search(r"([0-9.]+) output tokens/s", said)[1]))
    finally:
        server.terminate()
        server.wait(60)
    return found


def wait(url, server):
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}: see {FOLDER}/server-*.log")
        try:
            urllib.request.urlopen(url + "/models").read()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{url} does not answer")


def main():
    prepare()
    threads = len(os.sched_getaffinity(0))
    ours = [FULCRUM, "serve", "serve-plan.yaml", "--model-dir", FILE, "--port", 8021]
    theirs = [PYTHON, "-m", "llama_cpp.server", "--model", FILE, "--n_ctx", 512, "--port", 8022, "--interrupt_requests", "False",
              "--n_threads", threads, "--n_threads_batch", threads]
    found = {8021: [], 8022: []}
    for turn in range(ROUNDS):
        sides = [(ours, 8021), (theirs, 8022)]
        for command, port in sides if turn % 2 == 0 else reversed(sides):
            found[port].append(rates([str(word) for word in command], port))
    a, b = ([statistics.median(column) for column in zip(*rounds)] for rounds in found.values())
    print("| clients | fulcrum serve, tokens/s | llama-cpp-python's server | ratio |\n|--:|--:|--:|--:|")
    for clients, one, other in zip(CLIENTS, a, b):
        print(f"| {clients} | {one:.1f} | {other:.1f} | {one / other:.2f} |")


if __name__ == "__main__":
    main()
