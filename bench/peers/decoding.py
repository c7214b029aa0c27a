"""Decoding in specdec and in llama.cpp: tokens a second, and what forwards of 1 to 8 tokens cost.

The scripts beside this one name the model and the ways: smollm2.py, gemma3.py. Greedy, up to an end token or --tokens;
both programs get the same token ids (llama.cpp's tools the same text). For each prompt all ways take turns, in an order
that moves on from prompt to prompt. Rates are medians over prompts, with 95 % intervals (bootstrap).
"""
import argparse
import ctypes
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import llama_cpp

from llama_peer import LlamaCpp, be_quiet

ROOT = Path(__file__).resolve().parent.parent.parent
STRATEGIES = {"plain": "{type: autoregressive}",
              "prompt_lookup": "{type: speculative, draft_length: 6, drafter: {type: prompt_lookup}}",
              "suffix": "{type: speculative, draft_length: 6, drafter: {type: suffix}}",
              "cascade": "{type: speculative, draft_length: 6, drafter: {type: cascade, drafters: "
                         "[{type: suffix, min_tokens: 3}, {type: recycling}]}}"}
NGRAM_TYPES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Model:
    """What is decoded. `text`: of a prompt, with {} for its first turn. `special`: control pieces in it are tokens."""
    path: Path
    fetched_by: str
    format: str  # llama.cpp's name of the weights
    ends: tuple  # end tokens
    text: str = "{}"
    special: bool = False


def parse_options(text, prompts, limit=24, tokens=128):
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--prompts", default=str(prompts))
    parser.add_argument("--limit", type=int, default=limit, help="prompts, spread over the file")
    parser.add_argument("--tokens", type=int, default=tokens, help="new tokens a prompt at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=20, help="of each forward")
    parser.add_argument("--ways", default=".", help="a regular expression: only ways whose names hold it")
    parser.add_argument("--tools", help="folder of llama.cpp's programs")
    parser.add_argument("--specdec", default=str(ROOT / "build/specdec"))
    parser.add_argument("--json", action="store_true", help="print rows instead of a text")
    return parser.parse_args()


def run(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done


class Specdec:
    """A way of specdec: a strategy and a format of the weights."""
    engine = "specdec"

    def __init__(self, options, model, way, flags, name):
        self.options, self.model, self.way, self.flags, self.format = options, model, way, flags, name

    def generate(self, prompt):
        out = run([self.options.specdec, "--threads", self.options.threads, *self.flags, "--quiet", "generate",
                   self.model.path,
                   "--tokens", ",".join(map(str, prompt["ids"])), "--max-new-tokens", self.options.tokens, "--json",
                   "--strategy", STRATEGIES[self.way]]).stdout
        out = json.loads(out)
        figures = out["statistics"]
        return {"tokens": len(out["tokens"]), "ids": out["tokens"], "forwards": figures["steps"] + 1,
                "prompt_seconds": figures["prefill_seconds"], "seconds": figures["decode_seconds"]}

    def forwards(self):
        out = run([self.options.specdec, "--threads", self.options.threads, *self.flags, "profile",
                   self.model.path, "--contexts", "128", "--repeats", self.options.repeats, "--json"]).stdout
        return {point["new_tokens"]: 1000 * point["seconds"][0] for point in json.loads(out)["target"]}


class LlamaPython:
    """llama.cpp through its library."""
    engine = "llama.cpp"

    def __init__(self, options, model, way, path, name):
        self.options, self.model, self.way, self.path, self.format = options, model, way, path, name
        self.peer = None

    def open(self):
        if self.peer is None:
            self.peer = LlamaCpp(self.path, self.options.threads, context=2048)
            self.peer.greedy([1, 2, 3], 4)  # pages of the file, threads
        return self.peer

    def generate(self, prompt):
        peer, count = self.open(), self.options.tokens
        decode = peer.greedy if self.way == "plain" else peer.greedy_lookup
        ids, prompt_seconds, seconds, *forwards = decode(prompt["ids"], count, ends=self.model.ends)
        return {"tokens": len(ids), "ids": ids, "forwards": forwards[0] if forwards else len(ids),
                "prompt_seconds": prompt_seconds, "seconds": seconds}

    def forwards(self):
        peer = self.open()
        peer.truncate(0)
        peer.forward(list(range(1000, 1128)))
        times = {size: [] for size in SIZES}
        for _ in range(self.options.repeats):
            for size in SIZES:
                begin = time.perf_counter()
                peer.forward(list(range(2000, 2000 + size)), rows=size)
                times[size].append(1000 * (time.perf_counter() - begin))
                peer.truncate(128)
        return {size: statistics.median(all_times) for size, all_times in times.items()}


class LlamaTool:
    """One of llama.cpp's programs, which says how long it took."""
    engine = "llama.cpp"

    def __init__(self, options, command, path, name):
        self.options, self.path, self.format = options, path, name
        self.way, self.command = " ".join(command).replace("llama-speculative-simple --spec-type ", ""), command

    def generate(self, prompt):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as text:
            text.write(prompt["text"])
            text.flush()
            program = Path(self.options.tools) / self.command[0]
            done = run([program, *self.command[1:], "-m", self.path, "-f", text.name,
                        "-n", self.options.tokens, "-c", "4096", "-t", self.options.threads, "-tb",
                        self.options.threads, "--temp", "0", "-lv", "3"],
                       env={**os.environ, "LD_LIBRARY_PATH": self.options.tools})
        log = done.stdout + done.stderr
        read, decoded = (re.search(kind + r"\s+(\d+) tokens in\s+([\d.]+) seconds", log)
                         for kind in ("encoded", "decoded"))
        if not read or not decoded:
            sys.exit(f"{program} says no times:\n{log[-600:]}")
        accepted = re.search(r"n_accept\s*=\s*(\d+)", log)
        tokens = int(decoded[1])
        return {"tokens": tokens, "forwards": tokens - int(accepted[1]) if accepted else tokens,
                "prompt_seconds": float(read[2]), "seconds": float(decoded[2])}


def quantize(source, target, kind):
    llama_cpp.llama_log_set(be_quiet, ctypes.c_void_p(0))
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = kind
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), options) != 0:
        sys.exit(f"llama.cpp cannot quantize {source}")


def llama_tools(options, path, name):
    """A way for each of llama.cpp's programs that speculate without another model."""
    if not options.tools:
        return []
    commands = [["llama-lookup"], ["llama-lookahead"]]
    commands += [["llama-speculative-simple", "--spec-type", kind] for kind in NGRAM_TYPES]
    return [LlamaTool(options, command, path, name) for command in commands]


def chosen(options, ways):
    return [way for way in ways if re.search(options.ways, f"{way.engine} {way.way} {way.format}")]


def read_prompts(options, model):
    lines = Path(options.prompts).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    spread = [rows[i * len(rows) // options.limit] for i in range(min(options.limit, len(rows)))]
    texts = [model.text.replace("{}", row["turns"][0]) for row in spread]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("".join(json.dumps({"text": text}) + "\n" for text in texts))
        file.flush()
        special = ["--special"] if model.special else []
        out = run([options.specdec, "tokenize", model.path, "--file", file.name, *special]).stdout
    return [{"text": text, "schema": row.get("schema"), **json.loads(line)}
            for row, text, line in zip(spread, texts, out.splitlines())]


def with_interval(values, digits=1):
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.median(values):.{digits}f} ({medians[50]:.{digits}f} to {medians[1949]:.{digits}f})"


def rate(answer):
    """Of decoding: the first token comes with the prompt."""
    return (answer["tokens"] - 1) / answer["seconds"] if answer["seconds"] > 0 else 0.0


def whole_rate(answer):
    return answer["tokens"] / (answer["seconds"] + answer["prompt_seconds"])


def take_turns(ways, prompts):
    """Every way's answer to every prompt, in an order that moves on from prompt to prompt."""
    answers = {way: [] for way in ways}
    for number, prompt in enumerate(prompts):
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            answers[way].append(way.generate(prompt))
        print(f"{number + 1}/{len(prompts)} prompts", file=sys.stderr)
    return answers


def decode_all(ways, prompts):
    answers = take_turns(ways, prompts)
    plain = next((way for way in ways if way.engine == "specdec" and way.way == "plain"), ways[0])
    return [{"program": way.engine, "weights": way.format, "way": way.way,
             "tokens/s": with_interval([rate(answer) for answer in found]),
             "with the prompt": with_interval([whole_rate(answer) for answer in found]),
             "tokens/forward": round(sum(a["tokens"] for a in found) / max(1, sum(a["forwards"] for a in found)), 2),
             "answers as plain": equal_answers(found, answers[plain])} for way, found in answers.items()]


def equal_answers(found, plain):
    if "ids" not in found[0]:
        return "-"
    return f"{sum(a['ids'] == b['ids'] for a, b in zip(found, plain))}/{len(found)}"


def forward_all(ways):
    rows = []
    for way in ways:
        if way.way == "plain":
            costs = way.forwards()
            rows.append({"program": way.engine, "weights": way.format} |
                        {f"ms, n = {n}": round(costs[n], 2) for n in SIZES} |
                        {f"v({n})": round(costs[n] / costs[1], 2) for n in SIZES[1:]})
    return rows


def compare(options, model, make_ways):
    """Rows of decoding and of forwards. `make_ways(folder)` gives the ways; the folder lives as long as they do."""
    if not model.path.exists():
        sys.exit(f"{model.path.relative_to(ROOT)} is missing: run {model.fetched_by}")
    with tempfile.TemporaryDirectory() as work:
        ways = chosen(options, make_ways(Path(work)))
        rows = {"decoding": decode_all(ways, read_prompts(options, model)), "forwards": forward_all(ways)}
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for part in rows.values():
        for row in part:
            print(", ".join(f"{key}: {value}" for key, value in row.items()))
