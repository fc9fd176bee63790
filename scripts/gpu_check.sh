#!/usr/bin/env bash
# Everything that a machine with a GPU is asked, in under eight minutes, with a `fulcrum` that was built elsewhere. It needs a
# driver and CUDA's libraries (libnvrtc, libcublasLt), python3, and 25 GB where TMPDIR is.
#
#   scripts/gpu_check.sh ./fulcrum out [CSV GPU]
#
# CSV: GEMM times (gpu,dtype,m,n,k,latency_us) to compare with, under the GPU's name there. FULL=1 measures for five minutes
# more; MODELS="a b" takes other models than one of 1 B and one of 8 B parameters, the last of which is also run with
# an artificial limit of the GPU's memory, as is a small mixture of experts; SLACK=3 gives every part three times as long.
#
# Each part prints `ok` or `FAILED` and why, in one line, and leaves its files in the folder.
set -uo pipefail
export FULL=${FULL:-}
[ $# -ge 2 ] || { echo "usage: $0 FULCRUM OUT [CSV GPU]" >&2; exit 2; }
fulcrum=$(realpath "$1") out=$2
here=$(cd "$(dirname "$0")" && pwd)
read -ra models <<< "${MODELS:-llama-3.2-1b llama-3.1-8b}"
mkdir -p "$out" && out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=()

part() { # name, seconds, command...: one line, whatever happens
  local name=$1 limit=$(($2 * ${SLACK:-1})) start=$SECONDS
  shift 2
  # What it runs is a function of this script.
  if timeout "$limit" bash -c '"$@"' part "$@" > "$out/$name.log" 2>&1; then
    echo "ok     $name ($((SECONDS - start)) s): $(tail -n 1 "$out/$name.log")"
  else
    local status=$? why
    why=$(grep -v '^$' "$out/$name.log" | tail -n 1)
    [ $status = 124 ] && why="not done after $limit s"
    echo "FAILED $name ($((SECONDS - start)) s): ${why:-exit $status}"
    failed+=("$name")
    return 1
  fi
}

machine() { nvidia-smi > "$out/nvidia-smi.txt" && lscpu > "$out/lscpu.txt" && nvidia-smi -L; }
parity() { "$fulcrum" bench --gpu-kernels --json > "$out/kernels.json" && "$here/gpu_check.py" kernels "$out/kernels.json"; }
bench() {
  local depth=(--quick)
  [ "$FULL" = 1 ] && depth=()
  "$fulcrum" --json bench "${depth[@]}" -o "$out/host.yaml" > "$out/host.json" || return
  "$here/gpu_check.py" host "$out/host.json" "$@"
}
amx() {
  grep -qw amx_bf16 /proc/cpuinfo || { echo "this CPU has no AMX"; return; }
  "$here/gpu_check.py" amx "$out/host.json"
}
model() { "$fulcrum" model init "$1" -o "$work/${1##*/}"; }
# A mixture of 0.5 B parameters, of which a token reads an eighth.
experts() {
  cat > "$work/config.json" <<JSON
{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": 1024, "head_dim": 64,
 "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 8, "intermediate_size": 2048, "vocab_size": 32000,
 "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 512, "norm_topk_prob": true, "decoder_sparse_step": 1,
 "mlp_only_layers": [], "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "max_position_embeddings": 4096,
 "tie_word_embeddings": false, "attention_bias": false, "torch_dtype": "bfloat16"}
JSON
  "$fulcrum" model init "$work/config.json" -o "$work/experts"
}

# A plan for the model on the machine in $3, run once for its rates and trace, and beside the prediction.
run() { # name, model, host file, batch, prompt tokens, format of the weights (bf16)
  local folder=$work/${2##*/} scenario=$out/$1.scenario.yaml plan=$out/$1.plan.yaml
  cat > "$scenario" <<YAML
machine: {cpu: $3, gpu: $3, link: $3}
model: $folder
dtype: {weights: ${6:-bf16}, kv: bf16}
workload: {batch: $4, prompt_tokens: $5, output_tokens: 64}
objective: latency
YAML
  "$fulcrum" plan "$scenario" -o "$plan" > "$out/$1.plan.txt" || return
  "$fulcrum" --json run "$plan" --model-dir "$folder" --trace "$out/$1.trace.json" > "$out/$1.json" || return
  "$fulcrum" --json validate "$plan" --model-dir "$folder" --repeats 1 -o "$out/$1.validation.json" > "$out/$1.validate.json" || return
  "$here/gpu_check.py" run "$out/$1.json" "$out/$1.validation.json" "$out/host.json" "$plan"
}
# The same where the GPU's memory holds only a part of the model.
limited() { # name, model, share of the weights in percent, batch, prompt tokens
  "$here/gpu_check.py" limit "$out/host.yaml" "$work/${2##*/}/model.safetensors" "$3" > "$work/$1.yaml" || return
  run "$1" "$2" "$work/$1.yaml" "$4" "$5"
}

export -f machine parity bench amx model experts run limited
export fulcrum out here work
part machine 20 machine
part kernels 90 parity
if part bench "$([ "$FULL" = 1 ] && echo 600 || echo 150)" bench "${@:3}"; then
  part amx 10 amx
  for model in "${models[@]}"; do
    part "init-${model##*/}" 120 model "$model" || continue
    part "decode-${model##*/}" 120 run "decode-${model##*/}" "$model" "$out/host.yaml" 1 64
    part "prefill-${model##*/}" 120 run "prefill-${model##*/}" "$model" "$out/host.yaml" 4 1024
  done
  last=${models[-1]}
  part decode-int4 120 run decode-int4 "$last" "$out/host.yaml" 1 64 int4
  part batch-int8 120 run batch-int8 "$last" "$out/host.yaml" 8 512 int8
  part streamed 120 limited streamed "$last" 50 16 512
  part hybrid 120 limited hybrid "$last" 70 1 64
  if part init-experts 60 experts; then
    part decode-experts 60 run decode-experts experts "$out/host.yaml" 1 64
    part prefill-experts 60 run prefill-experts experts "$out/host.yaml" 4 1024
    part hybrid-experts 60 limited hybrid-experts experts 50 4 64
  fi
fi
[ ${#failed[@]} = 0 ] || { echo "FAILED: ${failed[*]}"; exit 1; }
echo "all parts are right: commit $out/host.yaml and $out/*.validation.json"
