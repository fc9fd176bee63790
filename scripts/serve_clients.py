#!/usr/bin/env python3
"""Sends requests to a server with OpenAI's Python client, some of which are cancelled, and prints what was measured.

    pip install openai
    fulcrum serve plan.yaml --model-dir model &
    scripts/serve_clients.py http://127.0.0.1:8000/v1 --clients 64 --requests 10000 --cancel 0.5

Every client asks, streams the answer, and asks again. A share of the requests, --cancel, is cancelled after a random
part of the answer. Where the server is `fulcrum serve`, its own times and what its plan predicts stand beside those of
the clients, and every request must be accounted for; its process (--pid) tells whether memory grows.
"""
import argparse
import asyncio
import random
import re
import statistics
import time
import urllib.request

import openai


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="like http://127.0.0.1:8000/v1")
    parser.add_argument("--token", default="none")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--cancel", type=float, default=0.5, help="share of the requests that are cancelled")
    parser.add_argument("--prompt-words", type=int, default=12)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--chat", action="store_true", help="ask for conversations instead of completions")
    parser.add_argument("--no-ignore-eos", action="store_true", help="for servers that do not know ignore_eos")
    parser.add_argument("--pid", type=int, help="the server's process, whose memory is watched")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Tally:
    def __init__(self):
        self.ttft, self.tpot, self.tokens = [], [], 0
        self.answered = self.cancelled = self.turned_away = 0


async def one(client, model, options, number, tally):
    draw = random.Random(options.seed * 1_000_003 + number)
    words = " ".join(draw.choice("a lever and a place to stand move the world".split()) for _ in range(options.prompt_words))
    wanted = draw.randint(1, options.max_tokens)
    leaves = draw.randint(1, wanted) if draw.random() < options.cancel else None
    common = dict(model=model, max_tokens=wanted, seed=number, stream=True, temperature=options.temperature)
    if not options.no_ignore_eos:
        common["extra_body"] = {"ignore_eos": True}
    while True:
        begin, first, last, count = time.perf_counter(), None, None, 0
        try:
            if options.chat:
                stream = await client.chat.completions.create(messages=[{"role": "user", "content": words}], **common)
            else:
                stream = await client.completions.create(prompt=words, **common)
        except openai.RateLimitError:
            tally.turned_away += 1
            await asyncio.sleep(0.1 * draw.random())
            continue
        async with stream:
            async for chunk in stream:
                if not chunk.choices:
                    continue
                choice = chunk.choices[0]
                text = choice.delta.content if options.chat else choice.text
                if choice.finish_reason is None or text:
                    last = time.perf_counter()
                    first = first or last
                    count += 1
                if leaves is not None and count >= leaves:
                    tally.cancelled += 1
                    return
        tally.answered += 1
        # A chunk may hold several tokens; an answer that ends by its length has all that were wanted.
        count = wanted if choice.finish_reason == "length" else count
        tally.tokens += count
        tally.ttft.append(first - begin)
        if count > 1:
            tally.tpot.append((last - first) / (count - 1))
        return


async def load(options):
    tally = Tally()
    client = openai.AsyncOpenAI(base_url=options.url, api_key=options.token, max_retries=0, timeout=600)
    model = (await client.models.list()).data[0].id
    numbers = iter(range(options.requests))
    memory = []

    async def user():
        for number in numbers:
            await one(client, model, options, number, tally)
            if options.pid and number % max(options.requests // 20, 1) == 0:
                memory.append(resident(options.pid))

    begin = time.perf_counter()
    await asyncio.gather(*(user() for _ in range(options.clients)))
    return model, tally, time.perf_counter() - begin, memory


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def metrics(options):
    """The server's counters once nothing runs; none where it has none."""
    url = re.sub(r"/v1/?$", "", options.url) + "/metrics"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {options.token}"})
    for _ in range(100):
        try:
            text = urllib.request.urlopen(request).read().decode()
        except OSError:
            return {}
        values = dict(re.findall(r"^(fulcrum_\S+) (\S+)$", text, re.MULTILINE))
        values = {name: float(value) for name, value in values.items()}
        if values.get("fulcrum_requests_running") == values.get("fulcrum_requests_waiting") == 0:
            break
        time.sleep(0.1)
    return values


def difference(before, after):
    return {name: value - before.get(name, 0) for name, value in after.items()}


def line(name, values):
    ordered = sorted(values)
    at = lambda share: ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1e3
    mean = statistics.fmean(ordered) * 1e3
    print(f"  {name}, clients: mean {mean:.2f} ms, p50 {at(0.5):.2f}, p90 {at(0.9):.2f}, p99 {at(0.99):.2f}")


def main():
    options = arguments()
    before = metrics(options)
    model, tally, seconds, memory = asyncio.run(load(options))
    done = tally.answered + tally.cancelled
    print(f"{model}: {options.requests} requests of {options.clients} clients in {seconds:.1f} s: {tally.answered} answered, "
          f"{tally.cancelled} cancelled, {tally.turned_away} times turned away")
    print(f"  {done / seconds:.1f} requests/s, {tally.tokens / seconds:.1f} output tokens/s of whole answers")
    line("TTFT", tally.ttft)
    line("TPOT", tally.tpot)
    after = difference(before, metrics(options))
    for name, key in [("TTFT", "time_to_first_token"), ("TPOT", "time_per_output_token")]:
        mean = {}
        for source in ["measured", "predicted"]:
            label = f'_seconds_{{}}{{{{source="{source}"}}}}'
            parts = [after.get(f"fulcrum_{key}" + label.format(part), 0) for part in ["sum", "count"]]
            mean[source] = parts[0] / parts[1] * 1e3 if parts[1] else None
        if mean["measured"]:
            error = (mean["predicted"] / mean["measured"] - 1) * 100
            print(f"  {name}, server: mean {mean['measured']:.2f} ms measured, {mean['predicted']:.2f} ms predicted ({error:+.1f} %)")
    ends = {end: after.get(f'fulcrum_requests_total{{result="{end}"}}', 0) for end in ["finished", "cancelled", "failed", "refused"]}
    if after:
        print("  server: " + ", ".join(f"{count:.0f} {end}" for end, count in ends.items()))
    if memory:
        print(f"  memory of the server: {memory[0] / 1e6:.1f} MB at the beginning, {memory[-1] / 1e6:.1f} MB at the end")
    assert done == options.requests, "a request was lost"
    if after:
        assert sum(ends.values()) == options.requests, "the server lost a request"


if __name__ == "__main__":
    main()
