#!/usr/bin/env python3
"""Compares Fulcrum's parameter counts with those of transformers, for each family both know.

Each model is made on the meta device, so that it takes no memory, from the defaults of its
configuration class or from a config.json. Needs torch and transformers.

    scripts/check_parameter_counts.py --fulcrum target/release/fulcrum [config.json ...]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

FAMILIES = """afmoe arcee apertus bamba cohere2 cwm deepseek_v3 deepseek_v32 deepseek_v4 ernie4_5
ernie4_5_moe exaone4 exaone_moe flex_olmo gemma3n_text gemma4_text glm glm4 glm4_moe_lite glm_moe_dsa
gpt_oss granite granitemoe granitemoehybrid granitemoeshared hy_v3 hyperclovax jais2 jamba kimi_linear
laguna lfm2 llama llama4_text mellum mimo_v2_flash minicpm3 minimax_m2 ministral3 mistral mixtral
nemotron_h olmo2 olmo3 olmo_hybrid olmoe phi3 phimoe qwen2_moe qwen3_5_moe_text qwen3_5_text qwen3_moe
qwen3_next seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma youtu""".split()

# Of all parameters. Small vectors that only some checkpoints have may differ.
TOLERANCE = 0.005


def counted_by_transformers(config):
    """The number of parameters, tied ones once, with the biases that balance experts."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    biases = [b for name, b in model.named_buffers() if name.endswith("correction_bias")]
    return sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in biases)


def counted_by_fulcrum(program, config):
    """The number of parameters that `fulcrum model show` prints, or its error."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(config.to_json_string(use_diff=False))
        command = [program, "--json", "model", "show", str(path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return None, run.stderr.strip()
    return json.loads(run.stdout)["parameters"], ""


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--fulcrum", default="fulcrum", help="the program")
    arguments.add_argument("configs", nargs="*", help="files to compare instead of the defaults")
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore")
    from transformers import CONFIG_MAPPING, AutoConfig

    wrong = 0
    named = [(path, lambda path=path: AutoConfig.from_pretrained(path)) for path in chosen.configs]
    defaults = [(name, lambda name=name: CONFIG_MAPPING[name]()) for name in FAMILIES if name in CONFIG_MAPPING]
    for name, make in named or defaults:
        try:
            config = make()
            theirs = counted_by_transformers(config)
        except Exception as error:  # A family without usable defaults is not an error of Fulcrum's.
            print(f"skip  {name}: {str(error).splitlines()[0][:80]}")
            continue
        ours, error = counted_by_fulcrum(chosen.fulcrum, config)
        if ours is None:
            print(f"WRONG {name}: {error[:100]}")
            wrong += 1
            continue
        difference = (ours - theirs) / theirs
        far = abs(difference) > TOLERANCE
        wrong += far
        print(f"{'WRONG' if far else 'ok   '} {name}: {ours} here, {theirs} there ({difference:+.4%})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
