"""llama.cpp beside us on the same GGUF files, in turn, each from its own process.

usage: files.py FILE_SPEED PYTHON FOLDER [ROUNDS] [--cpu-time]

FILE_SPEED is a release build of the executor's example of that name; PYTHON has llama-cpp-python and gguf; FOLDER has `model`, a Llama in
Hugging Face's form, and gets a file of each format. Prints medians of ROUNDS rounds, decode of 64 tokens and prefill of 512, and
ours ÷ llama.cpp. With --cpu-time both run on one core and the processor's time is compared instead, from the difference of a long and
a short run: for a machine with other work, where the threads of either would wait for each other.
"""

import json
import pathlib
import resource
import statistics
import subprocess
import sys

FILES = {"q4_k_m": "q4_k", "q6_k": "q6_k", "q8_0": "q8_0", "iq4_xs": "iq4_xs", "mxfp4": "mxfp4", "bf16": "bf16"}
PROMPT, OUTPUT, SHORT = 512, 64, 32


def said(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])


def seconds(command):
    """Processor time of a command on one core."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(["taskset", "-c", "0", *command], check=True, capture_output=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def by_cpu_time(command, evaluations):
    """Tokens a second of prefill and decode. A process evaluates the prompt `evaluations` times and decodes twice."""
    short, decoded, prefilled = (seconds(command(*size)) for size in ((SHORT, 1), (SHORT, OUTPUT + 1), (SHORT + PROMPT, 1)))
    return {"prefill": PROMPT * evaluations / (prefilled - short), "decode": 2 * OUTPUT / (decoded - short)}


def main():
    words = [word for word in sys.argv[1:] if word != "--cpu-time"]
    ours, python, folder = words[0], words[1], pathlib.Path(words[2]).resolve()
    rounds, script = int(words[3]) if len(words) > 3 else 3, pathlib.Path(__file__).with_name("with_llama_cpp.py")
    print("| file | ours: prefill, decode | llama.cpp: prefill, decode | ratio |\n|---|--:|--:|--:|")
    for name, dtype in FILES.items():
        subprocess.run([python, script, folder, name, "0", "0"], check=True, capture_output=True)
        commands = [
            lambda prompt, output: [ours, folder / f"{name}.gguf", dtype, str(prompt), str(output)],
            lambda prompt, output: [python, script, folder, name, str(prompt), str(output)],
        ]
        found = [[], []]
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                if "--cpu-time" in sys.argv:
                    rates = by_cpu_time(commands[side], (2, 3)[side])
                else:
                    rates = said(commands[side](PROMPT, OUTPUT))
                found[side].append((rates["prefill"], rates["decode"]))
        a, b = ([statistics.median(column) for column in zip(*rows)] for rows in found)
        print(f"| {name} | {a[0]:.1f}, {a[1]:.2f} | {b[0]:.1f}, {b[1]:.2f} | {a[0] / b[0]:.2f}, {a[1] / b[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
