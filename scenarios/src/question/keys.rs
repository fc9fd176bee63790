//! Every key of a scenario file: its values and its meaning. A test holds the table against the
//! keys that the reader accepts, and the reference page is made of it.

/// A key of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioKey {
    /// The dotted path from the root. `[]` stands for an element of a list.
    pub path: &'static str,
    /// The values that it takes, by example.
    pub values: &'static str,
    /// Its meaning, and its default where it has one.
    pub meaning: &'static str,
}

const fn key(path: &'static str, values: &'static str, meaning: &'static str) -> ScenarioKey {
    ScenarioKey { path, values, meaning }
}

/// All keys, in the order of the reference page.
pub const SCENARIO_KEYS: &[ScenarioKey] = &[
    key(
        "machine",
        "`h100-sxm`, `8x H200`, `RTX 4090, i7-14700K, 64 GB`, `machine.yaml`, `this`, `{cpu: …, gpu: …}`",
        "The machine: a shipped one, words that describe one (in a list, those with commas need quotes), a file, the one that `fulcrum bench` measured, or its parts.",
    ),
    key(
        "model",
        "`llama-3.1-70b`, `folder`, `config.json`, `model.gguf`",
        "The model: a preset, or files that describe it. Relative paths start at the scenario's folder.",
    ),
    key(
        "expert_skew",
        "`0.8`",
        "The exponent of Zipf's law by which tokens choose experts. Default 0: all experts alike.",
    ),
    key(
        "dtype",
        "`fp8`, `q4_k_m`, `[bf16, int4]`",
        "The format of weights, where no other is named. As `dtype.weights`.",
    ),
    key(
        "dtype.weights",
        "`int4`, `q4_k_m`, `published`, `[bf16, int8, q4_k_m]`, `{default: bf16, experts: mxfp4}`",
        "The format of weights, or several to choose from, also by class. A kind of GGUF file, as `q4_k_m`, means \
         llama.cpp's mixture; `published` means the formats of the model's own files. Default: the model's own.",
    ),
    key(
        "dtype.weights.default",
        "`q4_k`, `[bf16, int8]`, `{q4_k: 3, q6_k: 1}`",
        "The format of classes that are not named, or a mixture with each format's share of the values.",
    ),
    key("dtype.weights.attention", "`bf16`", "The format of attention's projections."),
    key("dtype.weights.ffn", "`int8`", "The format of feed-forward networks, shared experts included."),
    key("dtype.weights.experts", "`[int8, int4]`", "The format of experts."),
    key("dtype.weights.ends", "`bf16`", "The format of the token table and the output projection."),
    key("dtype.kv", "`bf16`, `[bf16, int8]`", "The format of the KV cache. Default bf16."),
    key(
        "dtype.activations",
        "`f32`, `bf16`",
        "The format between operators. Default f32, or bf16 with an engine other than `fulcrum`.",
    ),
    key("quality.max_loss", "`1 %`", "Formats that are known to raise perplexity by more are left out."),
    key("workload.batch", "`8`", "A static batch: sequences that start and end together."),
    key(
        "workload.prompt_tokens",
        "`512`, `{from: 16, to: 512}`, `{mean: 900, cv: 1}`",
        "Tokens of each prompt; for requests also a uniform or a log-normal distribution.",
    ),
    key(
        "workload.output_tokens",
        "`128`, `{from: 8, to: 64}`, `{mean: 200, cv: 1}`",
        "Tokens of each answer, likewise.",
    ),
    key("workload.concurrency", "`32`", "A closed loop: users who send the next request after each answer."),
    key(
        "workload.think_time",
        "`20 s`, `{from: 5 s, to: 40 s}`, `{mean: 20 s, cv: 1}`",
        "The time between an answer and the user's next request. Default 0.",
    ),
    key(
        "workload.ramp",
        "`30 s`",
        "The time within which the users of a closed loop begin. Default: the mean think time.",
    ),
    key(
        "workload.arrivals",
        "`{poisson: 5 req/s}`, `{uniform: …}`, `{gamma: …, cv: 2}`, `{bursts: …, size: 8}`",
        "An open loop: how requests arrive.",
    ),
    key(
        "workload.trace",
        "`requests.csv`, `conversation.jsonl`",
        "A recorded load: Azure's CSV, Mooncake's JSON lines, or `arrival_s,prompt_tokens,output_tokens`.",
    ),
    key("workload.speedup", "`2`", "A trace is replayed this many times as fast. Default 1."),
    key(
        "workload.requests",
        "`1000`",
        "The number of requests. Default: 20 for each user of a closed loop, all of a trace. An open loop needs it, but not for `fulcrum capacity`, which simulates as many as its answer needs and at least these.",
    ),
    key(
        "workload.distinct_prompts",
        "`100`",
        "How many different prompts the requests draw from, in turn: what a load generator's data set holds. Default: \
         all are different.",
    ),
    key(
        "workload.asked_before",
        "`{prompts: 320, prompt_tokens: 1024}`, a list",
        "Prompts that were asked before the first request, the oldest load first: the beginnings of the first so many \
         requests' prompts. The KV cache has those that it has room for. Default: it is empty.",
    ),
    key(
        "workload.beams",
        "`4`",
        "A beam search: the sequences that are kept of each answer. They share their prompt's KV cache. Default 1: none.",
    ),
    key(
        "workload.prefill_engines",
        "`2`, `[1, 2]`",
        "Engines that compute prompts only and hand them over to the others; several numbers for `fulcrum capacity` to \
         choose from, of the engines of a machine. Default: every engine does both.",
    ),
    key(
        "workload.kv_link",
        "`50 GB/s`",
        "How fast the KV cache goes from one to the other. Default: the link between the GPUs of a machine.",
    ),
    key("workload.seed", "`7`", "The seed of random lengths and arrivals. Default 1."),
    key(
        "workload.replicas",
        "`4`",
        "Engines that share the requests, side by side where a machine has GPUs for several. Default 1.",
    ),
    key(
        "workload.router",
        "`round_robin`, `least_requests`, `two_choices`, `cache_aware`",
        "How requests are shared among replicas.",
    ),
    key(
        "workload.training.sequences",
        "`8`",
        "A training step with its state in the host's memory: sequences of the batch.",
    ),
    key("workload.training.tokens", "`2048`", "Tokens of each sequence of a training step."),
    key(
        "objective",
        "`latency`, `tpot`, `throughput`, `energy`, `cost`",
        "What the plan is to be best at. Default `latency`: TTFT + (output tokens − 1) · TPOT.",
    ),
    key("slo.ttft", "`2 s`", "The limit on the time to the first token."),
    key("slo.tpot", "`50 ms`", "The limit on the time per output token."),
    key("costs.lifetime", "`4 y`", "The years over which the machine's price is paid."),
    key("costs.per_kwh", "`0.12 USD`", "The price of a kilowatt-hour."),
    key(
        "engine",
        "`fulcrum`, `vllm`, `trtllm`, `sglang`, `llama.cpp`, `ktransformers`, `{name: vllm, …}`",
        "The engine that is simulated: a shipped one. Default `fulcrum`: without overheads that were not measured. For \
         `capacity` it may be a list, as `[vllm, sglang]`: each machine is asked with each.",
    ),
    key("engine.name", "`vllm`", "The engine, where other keys stand beside it."),
    key(
        "engine.file",
        "`my-engine.yaml`",
        "An engine of your own: the keys in which it differs from `fulcrum`.",
    ),
    key("engine.version", "`\"0.19\"`", "Its version. Default: the newest that is known."),
    key(
        "engine.execution",
        "`{hop: 20 us, graphs: true}`",
        "What it adds to a step on any machine, where that differs from the engine's file.",
    ),
    key("engine.max_num_seqs", "`256`", "Sequences that run at once. Default: the engine's."),
    key("engine.max_num_batched_tokens", "`8192`", "Tokens of a step. Default: the engine's."),
    key("engine.block_size", "`16`", "Tokens of a KV block. Default: the engine's."),
    key(
        "engine.num_blocks",
        "`2588`",
        "KV blocks. Default: counted from the memory that weights and activations leave.",
    ),
    key(
        "engine.gpu_memory_utilization",
        "`0.9`",
        "The share of a device's memory that the engine uses. Default: the engine's.",
    ),
    key("engine.prefix_caching", "`true`, `false`", "Whether KV blocks of a known prefix are found again."),
    key(
        "engine.prefix_cache.to",
        "`dram`, `cxl`",
        "The memory of a second level of the prefix cache. Default `dram`.",
    ),
    key("engine.prefix_cache.space", "`256 GB`", "The size of that second level."),
    key("engine.chunked_prefill", "`true`, `false`", "Whether prompts enter in chunks."),
    key(
        "engine.prefill_first",
        "`true`, `false`",
        "Whether prompts enter in steps of their own, before others decode on.",
    ),
    key(
        "engine.scheduler",
        "`fcfs`, `shortest_first`, `slo`",
        "The order of waiting requests; `slo` goes by `slo.ttft` and `slo.tpot`. Default `fcfs`.",
    ),
    key(
        "engine.preemption",
        "`recompute`, `swap`, `cheaper`",
        "What happens to the KV cache of a preempted sequence. Default `recompute`.",
    ),
    key("engine.swap_space", "`16 GB`", "The room for swapped KV caches."),
    key("engine.swap_to", "`dram`", "The memory for swapped KV caches. Default `dram`."),
    key("engine.host_per_step", "`1 ms`", "The host's time for each step. Default: the engine's."),
    key(
        "engine.host_per_sequence",
        "`8 us`",
        "The host's time for each sequence of a step. Default: the engine's.",
    ),
    key(
        "engine.host_per_request",
        "`20 ms`",
        "The time from a request's arrival until it may be scheduled. Default: the engine's.",
    ),
    key(
        "engine.stream_interval",
        "`10`",
        "Tokens that reach the client together, the first with the last. Default: the engine's.",
    ),
    key(
        "engine.tokeniser",
        "`{per_request: 20 ms, per_token: 10 us}`",
        "What turns prompts into tokens, one request after another, or up to `batch` that come within `batch_wait` and leave it together. Default: the engine's.",
    ),
    key(
        "engine.detokeniser",
        "`{per_token: 100 us}`",
        "What turns answers into text, one token after another. Default: the engine's.",
    ),
    key(
        "engine.reserve",
        "`chunk`, `prompt`, `answer`, `whole_answer`",
        "The tokens that must have room before a request is admitted. Default: the engine's.",
    ),
    key(
        "shifts",
        "`[{from: 2 min, until: 6 min, device: cpu, slower: 2}]`",
        "Changes during a served day: a `slower` device, `longer` prompts, or a `busier` time.",
    ),
    key(
        "rebalance",
        "`true`",
        "Whether engines change to another plan when the load or a device changes. Default false.",
    ),
    key(
        "tensor_parallel",
        "`4`, `[1, 2, 4]`",
        "GPUs that work as one, or several degrees to choose from. Default: every degree that divides them.",
    ),
    key(
        "pipeline_parallel",
        "`2`, `[1, 2, 4]`",
        "Stages of consecutive layers, each on `tensor_parallel` GPUs, or several numbers of them. Default 1.",
    ),
    key(
        "expert_parallel",
        "`true`, `[false, true]`",
        "Whether each routed expert is whole on one of the `tensor_parallel` GPUs. Default false: all share it.",
    ),
    key(
        "data_parallel",
        "`8`, `[1, 8]`",
        "With `expert_parallel: true`: engines with sequences of their own that share the experts and make their steps \
         together, each on `tensor_parallel` GPUs. A number, or a list to choose from. Default 1.",
    ),
    key(
        "speculative.draft",
        "`llama-3.2-1b`, `mtp`",
        "The draft model of speculative decoding; `mtp` is the model's own MTP module.",
    ),
    key(
        "speculative.tokens",
        "`4`, `[2, 4, 8]`",
        "Tokens that it proposes, or several numbers to choose from.",
    ),
    key("speculative.acceptance", "`0.8`", "The chance that a proposed token is accepted."),
    key(
        "placement.gpu_layers",
        "`20`, `99`",
        "A placement that is forced, as llama.cpp's `-ngl`: the last layers with their KV cache are on the GPUs; with \
         more than there are, the output projection too. Default, beside the keys below: all where there is a GPU.",
    ),
    key(
        "placement.cpu_moe_layers",
        "`30`",
        "Routed experts of the first layers stay with the host (`--n-cpu-moe`).",
    ),
    key("placement.cpu_moe", "`all`", "The routed experts of all layers do (`-cmoe`)."),
    key(
        "placement.override_tensor",
        "`[\"blk\\\\.(0|1)\\\\.ffn.*=CUDA0\", \"exps=CPU\"]`",
        "Patterns of llama.cpp's tensor names with their buffers (`-ot`), before the keys above; the first that \
         matches wins. A matrix whose tensors go different ways is divided by their sizes.",
    ),
    key(
        "placement.op_offload",
        "`true`, `false`, `1024`",
        "Whether the GPU fetches the host's weights for products of 32 tokens and more, or of how many. Default: what the engine does; llama.cpp does, `fulcrum` does not.",
    ),
    key(
        "placement.tensor_split",
        "`[3, 1]`",
        "By GPU, its part of the layers that GPUs hold (`-ts`). Default: as their memories are.",
    ),
    key(
        "placement.kv_offload",
        "`false`",
        "`false` keeps the KV caches, and attention with them, with the host (`-nkvo`). Default `true`.",
    ),
    key("placement.micro_batch", "`2048`", "Tokens of one step of prefill (`-ub`). Default 512."),
    key(
        "placement.rule",
        "`all-cpu`, `fill-memory`, `flexgen`",
        "The placement of one of the rules that plans are compared with.",
    ),
    key("placement.plan", "`plan.yaml`", "The placement of a plan."),
    key(
        "capacity.load",
        "`60 req/s`, `900 users`",
        "The load that all machines together must serve. Default: the workload's own.",
    ),
    key("capacity.growth", "`40 %`", "The growth of the load from year to year. Default 0."),
    key("capacity.years", "`3`", "The years that are counted. Default 3."),
    key("capacity.attainment", "`99 %`", "The share of requests that must keep every limit. Default 99 %."),
    key("capacity.duty", "`60 %`", "The share of the time in which the load is there. Default 100 %."),
    key("capacity.prices.lifetime", "`5 y`", "The years after which a machine is bought again."),
    key("capacity.prices.per_kwh", "`0.10 USD`", "The price of a kilowatt-hour."),
    key("capacity.prices.pue", "`1.3`", "Energy of the building ÷ energy of the machines."),
    key("capacity.prices.hosting", "`180 USD`", "Room and cooling for a kilowatt over a month."),
    key("capacity.prices.server", "`12000 USD`", "Chassis, boards, supplies, network and system disk."),
    key("capacity.prices.dram_per_gb", "`5 USD`", "A gigabyte of host memory."),
    key("capacity.prices.cxl_per_gb", "`8 USD`", "A gigabyte of CXL memory, the card included."),
    key("capacity.prices.nvme_per_gb", "`0.1 USD`", "A gigabyte of a disk."),
    key(
        "capacity.currencies",
        "`{EUR: 1.08 USD on 2026-11-01}`",
        "The worth of other currencies that prices are given in, with the day of the rate.",
    ),
    key(
        "capacity.machines",
        "`[l40s, 8x H200, {cpu: …, gpu: …}, {machine: …, set: {…}}]`",
        "The machines that may be bought: each a name, words, parts, or a mapping of the keys below.",
    ),
    key("capacity.machines[].name", "`eight GPUs`", "A name for people. Default: its parts."),
    key("capacity.machines[].machine", "`8x H200`, `{cpu: …, gpu: …}`", "The machine."),
    key(
        "capacity.machines[].set",
        "`{tensor_parallel: [1, 2, 4, 8]}`",
        "Keys of the scenario that are different on this machine.",
    ),
    key(
        "capacity.machines[].price",
        "`250000 USD`",
        "The price of the whole machine. Default: the sum of its parts.",
    ),
    key("capacity.machines[].power", "`2 kW`", "The power that it draws when busy."),
    key("capacity.machines[].idle_power", "`400 W`", "The power that it draws while it waits."),
    key(
        "sweep",
        "`{workload.batch: [1, 8, 64], workload.prompt_tokens: 512..8192*2}`",
        "Lists of values that `fulcrum sweep` runs through; keys that go together are separated by commas.",
    ),
];
