#!/usr/bin/env python3
"""Compares what `fulcrum advise` says of users' machines with what they measured, and prints how far it is off.

    cargo build --release --bin fulcrum && scripts/advise.py [--rows ROWS.csv] [--models NAME,NAME] USERS.csv HYBRID.csv [FULCRUM]

USERS.csv has a line for each run of a user: gpu, gpus, vram_gb, unified_gb, chip, cpu, model, engine, quantization,
backend, prompt_tokens, output_tokens, batch, decode_tok_s, prefill_tok_s, spec. HYBRID.csv has cpu, dram, gpu, link,
model, quant, engine, batch, prompt_tokens, output_tokens, metric, value. Left out are runs of several sequences, runs
with a draft, models and formats that are not known, and lines that do not name their machine. Nothing is fitted, and
the placement is the one that advice would choose, not the user's. vLLM's runs of more than 4,096 prompt tokens that
state no prompt rate give the tokens of the answer over the time of the whole request, which falls as one over the
prompt; so does what they are compared with. Where that time hardly grows with the prompt, the prompts were in the
engine's cache, and the rate is that of decode. --rows writes each run with our figure; --models counts
only runs of models whose names contain one of these, in small letters.
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import pathlib
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARSER = argparse.ArgumentParser()
PARSER.add_argument("--rows")
PARSER.add_argument("--models", type=lambda names: names.split(","), default=[""])
PARSER.add_argument("users")
PARSER.add_argument("hybrid")
PARSER.add_argument("fulcrum", nargs="?", default=ROOT / "target/release/fulcrum")
ASKED = PARSER.parse_args()
ENGINES = {"llama.cpp": "llama.cpp", "ik_llama.cpp": "ik_llama.cpp", "vllm": "vllm", "sglang": "sglang",
           "ollama": "ollama", "mlx": "llama.cpp", "lmstudio": "lmstudio", "ktransformers": "ktransformers"}
SAFE = {"bf16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4", "awq": "int4_g128", "gptq": "int4_g128", "int4": "int4_g128",
        "int8": "int8", "mxfp4": "mxfp4", "gptq4": "int4_g128"}


def tokens(text, otherwise):
    """A number of tokens; `otherwise` where none is said."""
    return max(int(float(text)), 1) if re.fullmatch(r"[\d.]+", text) else otherwise


def format_of(quant, engine):
    """The word of our format for a user's; None where there is none."""
    word = re.sub(r"^ud-|_r[48]$", "", quant.lower().split(" ")[0].strip("(,")).replace("-", "_")
    if engine in ("vllm", "sglang"):
        return SAFE.get(word)
    if word in ("mxfp4", "f16") :
        return {"mxfp4": "mxfp4_moe", "f16": "f16"}[word]
    known = {"4bit": "q4_0", "mlx_8bit": "q8_0", "q6_k_l": "q6_k"}
    plain = re.sub(r"_xl$", "_m", word).replace("q2_k_m", "q2_k").replace("q6_k_m", "q6_k").replace("q8_k_m", "q8_0")
    return known.get(word, plain)


def users():
    """(machine, engine, model, quantisation, prompt, output, measured decode rate, measured prompt rate)"""
    for row in csv.DictReader(open(ASKED.users)):
        if row["batch"] != "1" or row["spec"] != "0" or "MTP" in row["model"] or not row["decode_tok_s"]:
            continue
        gpu = row["gpu"] and f'{row["gpus"]}x {row["gpu"]} {row["vram_gb"]} GB'
        memory = row["unified_gb"] and f'{row["unified_gb"]} GB'
        alone = "no GPU" if row["backend"] == "cpu" else ""
        machine = ", ".join(part for part in [gpu, row["chip"], row["cpu"].strip(), memory, alone] if part)
        yield (machine, row["engine"], row["model"], row["quantization"], row["prompt_tokens"], row["output_tokens"],
               float(row["decode_tok_s"]), row["prefill_tok_s"] and float(row["prefill_tok_s"]))


def hybrids():
    for row in csv.DictReader(open(ASKED.hybrid)):
        if row["metric"] not in ("decode_tput", "prefill_tput") or row["batch"] != "1":
            continue
        plain = [re.sub(r"\(.*?\)", "", row[key]).strip() for key in ("gpu", "cpu", "dram", "link")]
        machine = ", ".join(part for part in [plain[0], plain[1], plain[2].replace(",", " "), plain[3]] if part)
        rates = (float(row["value"]), None) if row["metric"] == "decode_tput" else (None, float(row["value"]))
        yield (machine, row["engine"].lower(), row["model"], row["quant"], row["prompt_tokens"] or "512", "128", *rates)


def advice(run):
    """Our decode rate, our time of the prompt, the kind of placement, and the preset and the format that were
    understood; the error's text where there is none."""
    machine, engine, model, quant, prompt, output, *_ = run
    word, engine = format_of(quant, engine), ENGINES.get(engine)
    if not word or not engine:
        return f"the format {quant} of {run[1]}"
    name = re.sub(r"-(GGUF|FP8|AWQ.*|GPTQ.*|NVFP4.*|MLX.*|it|qat|BF16|\d+bit)\b", "", model.split("/")[-1]).strip()
    name = re.sub(r"\s+\d+(\.\d+)?B.*$", "", name)
    prompt = tokens(prompt, 512)
    context = prompt + max(tokens(output, 128), 256)  # Advice leaves room for answers of 256 tokens.
    command = [ASKED.fulcrum, "--json", "advise", "--machine", machine, "--engine", engine, "--model", name,
               "--format", word, "--prompt", str(prompt), "--context", str(context)]
    # Those who measured named no other size of a prompt's steps.
    command += ["--micro-batch", "512"] if "llama.cpp" in engine else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        text = json.loads(done.stderr.splitlines()[-1])["error"]["text"]
        lines = [line for line in text.splitlines() if "understood:" not in line]
        return lines[min(1, len(lines) - 1)].strip()[:90] if "not clear" in lines[0] else lines[0][:90]
    row = json.loads(done.stdout)["rows"][0]
    seconds = row["ttft"].split()
    ttft = float(seconds[0]) * {"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60}[seconds[1]]
    return row["tok_s"], ttft, row["class"], row["model"], row["format"]


def told(name, ratios):
    """One line: errors of our rates, and between which shares of ours 80 % of the measured lie."""
    errors = sorted(abs(one - 1) for one in ratios)
    shares = sorted(1 / one for one in ratios)
    at = lambda share, of: of[round(share * (len(of) - 1))]
    print(f"{name:42} {len(ratios):4} {statistics.median(errors):8.1%} {at(0.9, errors):8.1%} "
          f"{statistics.median(ratios):6.2f} {at(0.1, shares):6.2f} {at(0.9, shares):6.2f}")


def is_whole_request(run):
    """Whether its rate may be that over a whole request: of long prompts of vLLM without a rate of their own."""
    return run[1] == "vllm" and tokens(run[4], 512) > 4096 and not run[7]


def prompts_in_cache(runs, known):
    """For each machine, engine, model and format whether long prompts came from the engine's cache: from the shortest to
    the longest, a token more took less than a fifth of what a token of a prompt takes by our prediction."""
    whole = collections.defaultdict(list)
    for run in runs:
        answer = known[run[:6]]
        if is_whole_request(run) and run[6] and not isinstance(answer, str):
            whole[run[:4]].append((tokens(run[4], 512), tokens(run[5], 128) / run[6], answer[1]))
    cached = collections.defaultdict(bool)
    for of, times in whole.items():
        (first, begin, _), (last, end, ttft) = min(times), max(times)
        cached[of] = last > first and (end - begin) / (last - first) < ttft / last / 5
    return cached


def main():
    runs = [run for run in (*users(), *hybrids()) if any(name in run[2].lower() for name in ASKED.models)]
    groups, refused, rows = collections.defaultdict(list), collections.Counter(), []
    unique = list(dict.fromkeys(run[:6] for run in runs))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        known = dict(zip(unique, pool.map(advice, unique)))
    cached = prompts_in_cache(runs, known)
    for run in runs:
        answer = known[run[:6]]
        if isinstance(answer, str):
            refused[answer] += 1
            continue
        (decode, ttft, kind, preset, word), (measured, prefilled) = answer, run[6:]
        prompt = tokens(run[4], 512) / ttft
        if is_whole_request(run) and not cached[run[:4]]:
            tokens_out = tokens(run[5], 128)
            decode = tokens_out / (ttft + tokens_out / decode)
        for phase, ours, theirs in [("decode", decode, measured), ("prompt", prompt, prefilled)]:
            if theirs and (phase == "decode" or tokens(run[4], 512) >= 256):
                rows.append([*run[:6], kind, phase, ours, theirs, preset, word])
                for group in ["all", kind, run[1]]:
                    groups[f"{phase}, {group}"].append(ours / theirs)
    print(f'{"":42} rows   median      p90  ratio  80 % of measured ÷ ours')
    for name, ratios in sorted(groups.items()):
        told(name, ratios)
    print(f"answered {sum(len(r) for n, r in groups.items() if n.endswith(', all'))} figures; not answered:")
    for why, count in refused.most_common(25):
        print(f"  {count:4} {why}")
    if ASKED.rows:
        with open(ASKED.rows, "w", newline="") as file:
            header = ("machine,engine,model,quantization,prompt_tokens,output_tokens,places,phase,ours_tok_s,"
                      "measured_tok_s,preset,format")
            csv.writer(file).writerows([header.split(","), *rows])


main()
