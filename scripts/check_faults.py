#!/usr/bin/env python3
"""Lets every call that changes a file fail, one at a time, in every command that writes.

    cargo build -p fulcrum-cli && scripts/check_faults.py [--binary target/debug/fulcrum] [--only NAME]

A run of each command counts its calls. Then the n-th of them fails, for every n: with a full disk
(ENOSPC), a broken one (EIO), an interrupt (EINTR), and with the process killed before the call. The
laws:

- Where the exit status is 0, every output is what it is without a fault.
- Otherwise it is 1 or 2 with an error, and every output is what it was before, or what it is without
  a fault. Only a killed process leaves a draft, and the next command that writes the file works.
- A sweep and a file of requests go on with --resume to the output of a run without a fault.
- Where every write takes half of its bytes, which is no fault, nothing changes at all.

It needs strace and a C compiler. Linux may forbid strace in containers; then it says so and fails.
"""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

SCENARIO = "machine: example-loopback\nmodel: fulcrum-tiny\nworkload: {batch: 2, prompt_tokens: 8, output_tokens: 4}\n"
DAY = SCENARIO.replace("{batch: 2, prompt_tokens: 8, output_tokens: 4}",
                       "{arrivals: {poisson: 50 req/s}, requests: 20, prompt_tokens: 8, output_tokens: 4}")
CAPACITY = """machine: l4
model: llama-3.1-8b
dtype: {weights: int4}
workload: {arrivals: {poisson: 1 req/s}, requests: 10, prompt_tokens: 512, output_tokens: 4}
slo: {ttft: 3 s}
capacity: {load: 5 req/s, machines: [{name: here, machine: l4, price: 5000 USD, power: 100 W}]}
"""
REQUESTS = "".join(f'{{"tokens": [{n + 1}, 8, 7], "max_tokens": 6}}\n' for n in range(6))
OPERATORS = "dtype,m,n,k\nbf16,1,2048,2048\nbf16,16,4096,4096\n"

# Name: arguments, the files that they write, and whether they go on with --resume.
COMMANDS = {
    "plan": ("plan s.yaml -o out.yaml", ["out.yaml"], False),
    "grid": ("plan s.yaml --grid --set workload.batch=1,2 -o out.yaml", ["out.yaml"], False),
    "front": ("plan s.yaml --front ttft,tpot -o out.csv", ["out.csv"], False),
    "traces": ("sim s.yaml --trace out.json --perfetto out.perfetto", ["out.json", "out.perfetto"], False),
    "day": ("sim day.yaml --requests out.csv --series out.parquet", ["out.csv", "out.parquet"], False),
    "sweep": ("sweep s.yaml --set workload.batch=1..6 -o out.csv", ["out.csv", "out.csv.stamp"], True),
    "parquet": ("sweep s.yaml --set workload.batch=1..6 -o out.parquet", ["out.parquet", "out.parquet.stamp"], True),
    "shard": ("sweep s.yaml --set workload.batch=1..6 --shard 0/2 -o out.csv", ["out.csv", "out.csv.stamp"], True),
    "merge": ("merge 0.csv 1.csv -o out.csv", ["out.csv", "out.csv.stamp"], False),
    "capacity": ("capacity capacity.yaml -o out.html", ["out.html"], False),
    "dot": ("explain plan.yaml --dot out.dot", ["out.dot"], False),
    "report": ("report plan.yaml -o out.html --plots plots", ["out.html"], False),
    "batch": ("run plan.yaml --model-dir model --batch asked.jsonl -o out.jsonl", ["out.jsonl"], True),
    "predict": ("predict h100-sxm --ops operators.csv -o out.csv", ["out.csv"], False),
    "stdout": ("plan s.yaml", [], False),
}

CALLS = ["write", "writev", "pwrite64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "ftruncate",
         "unlink", "unlinkat", "mkdir", "fchmod", "openat"]
ERRORS = ["ENOSPC", "EIO", "EINTR"]
CREATED = re.compile(r'openat\([^"]*"([^"]*)", [^)]*O_(?:CREAT|WRONLY|RDWR)')


def run(binary, folder, arguments, strace=(), **more):
    command = [*strace, binary, *arguments.split()]
    # One thread of the pool, so that the n-th call is the same one in every run.
    environment = dict(os.environ, FULCRUM_HOME=folder, RAYON_NUM_THREADS="1", **more)
    environment.pop("RUST_BACKTRACE", None)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=300)


def contents(folder, names):
    found = {}
    for name in names:
        path = os.path.join(folder, name)
        found[name] = open(path, "rb").read() if os.path.exists(path) else None
    return found


def prepared(binary, base):
    for name, text in {"s.yaml": SCENARIO, "day.yaml": DAY, "capacity.yaml": CAPACITY, "asked.jsonl": REQUESTS,
                       "operators.csv": OPERATORS}.items():
        open(os.path.join(base, name), "w").write(text)
    for arguments in ["model init fulcrum-tiny -o model", "plan s.yaml -o plan.yaml",
                      "sweep s.yaml --set workload.batch=1..6 --shard 0/2 -o 0.csv",
                      "sweep s.yaml --set workload.batch=1..6 --shard 1/2 -o 1.csv"]:
        done = run(binary, base, arguments)
        assert done.returncode == 0, (arguments, done.stderr)


def calls_of(binary, base, arguments):
    """By call, which of its runs change something, counted in each thread from 1."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(base, folder, dirs_exist_ok=True)
        log = os.path.join(folder, "strace.log")
        traced = run(binary, folder, arguments,
                     ["strace", "-f", "--seccomp-bpf", "-qq", "-o", log, "-e", "trace=" + ",".join(f"?{call}" for call in CALLS)])
        if traced.returncode != 0:
            sys.exit(f"strace: {traced.stderr.decode()}")
        seen, wanted = collections.Counter(), collections.defaultdict(set)
        for line in open(log, errors="replace"):
            found = re.match(r"(\d+) +(\w+)\(", line)
            if not found:
                continue
            thread, call = found.groups()
            seen[thread, call] += 1
            opens = CREATED.search(line)
            if call == "openat" and not (opens and not opens[1].startswith(("/proc", "/sys", "/dev"))):
                continue
            if call == "write" and re.match(r"\d+ +write\(2,", line):
                continue
            wanted[call].add(seen[thread, call])
        return wanted


def broken_laws(binary, folder, arguments, outputs, resumes, done, killed, wanted, before):
    after, text = contents(folder, outputs), done.stderr.decode(errors="replace")
    drafts = [name for name in os.listdir(folder) if name.endswith(".tmp")]
    if done.returncode == 0:
        if after != wanted:
            yield "an output is wrong and the exit status 0"
    elif not killed:
        if done.returncode not in (1, 2) or "error: " not in text or "panicked" in text:
            yield f"exit status {done.returncode}: {text[:200]}"
        if drafts:
            yield f"drafts are left: {drafts}"
    for name, found in after.items():
        if found not in (before[name], wanted[name]):
            yield f"{name} is neither what it was nor what it should be"
    if done.returncode != 0:
        again = run(binary, folder, f"{arguments} --resume" if resumes else arguments)
        if again.returncode != 0 or contents(folder, outputs) != wanted:
            yield f"another run does not mend it: {again.returncode} {again.stderr.decode()[:200]}"


def short_writes(folder):
    """The shim that halves every write."""
    shim = os.path.join(folder, "short_writes.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "short_writes.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", shim, source], check=True)
    return shim


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/fulcrum")
    parser.add_argument("--only", action="append", choices=COMMANDS)
    options = parser.parse_args()
    binary, tried, broken = os.path.abspath(options.binary), 0, 0
    with tempfile.TemporaryDirectory() as base:
        prepared(binary, base)
        shim = short_writes(base)
        for name in options.only or COMMANDS:
            arguments, outputs, resumes = COMMANDS[name]
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(base, folder, dirs_exist_ok=True)
                good = run(binary, folder, arguments)
                assert good.returncode == 0, (arguments, good.stderr)
                wanted = contents(folder, outputs)
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(base, folder, dirs_exist_ok=True)
                done = run(binary, folder, arguments, LD_PRELOAD=shim)
                if done.returncode != 0 or contents(folder, outputs) != wanted or done.stdout != good.stdout:
                    broken += 1
                    print(f"{name}: short writes change it: {done.returncode} {done.stderr.decode()[:200]}", flush=True)
            points = 1
            for call, places in calls_of(binary, base, arguments).items():
                for fault in [f"error={error}" for error in ERRORS] + ["signal=KILL"]:
                    if fault == "error=EINTR" and call not in ("write", "openat", "fsync"):
                        continue
                    for place in sorted(places):
                        points += 1
                        with tempfile.TemporaryDirectory() as folder:
                            shutil.copytree(base, folder, dirs_exist_ok=True)
                            if not resumes:
                                for output in outputs:
                                    open(os.path.join(folder, output), "w").write("before")
                            before = contents(folder, outputs)
                            inject = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=none", "-e",
                                      f"inject={call}:{fault}:when={place}"]
                            done = run(binary, folder, arguments, inject)
                            killed = "KILL" in fault
                            for law in broken_laws(binary, folder, arguments, outputs, resumes, done, killed,
                                                   wanted, before):
                                broken += 1
                                print(f"{name}: {call} {place} {fault}: {law}", flush=True)
            tried += points
            print(f"{name}: {points} faults", flush=True)
    print(f"{tried} faults in {len(options.only or COMMANDS)} commands, {broken} laws broken")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
