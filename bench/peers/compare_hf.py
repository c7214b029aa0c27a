#!/usr/bin/env python3
"""Decoding beside Hugging Face `generate`, on the same checkpoints, in the same run.

    python3 -m venv --system-site-packages VENV && VENV/bin/pip install transformers==4.57.6   # once
    VENV/bin/python bench/peers/compare_hf.py [--threads N] [--tokens N] [--rounds N] [--json]

Three ways, each greedy and in float32: plain decoding, a draft model (assisted generation) and prompt
lookup, with the same number of drafted tokens. For each prompt the two programs take turns. Both must
give the same tokens, or the comparison is refused, saying where they part. Prints tokens/s (prefill
included), their ratio, and how many tokens were drafted and accepted.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(ROOT / "models/target"))
    parser.add_argument("--draft", default=str(ROOT / "models/draft"))
    parser.add_argument("--prompts", default=str(ROOT / "configs/prompts/pair.jsonl"))
    parser.add_argument("--limit", type=int, default=6, help="prompts, spread over the file")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a prompt")
    parser.add_argument("--draft-length", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--specdec", default=str(ROOT / "build/specdec"))
    parser.add_argument("--json", action="store_true", help="print rows instead of a text")
    return parser.parse_args()


def strategy_of(way, options):
    """The strategy of specdec for a way of decoding."""
    if way == "plain":
        return "{type: autoregressive}"
    drafter = (f"{{type: draft_model, weights: {json.dumps(options.draft)}}}"
               if way == "draft model" else "{type: prompt_lookup, min_ngram: 1, max_ngram: 2}")  # as there
    return f"{{type: speculative, draft_length: {options.draft_length}, drafter: {drafter}}}"


class Specdec:
    def __init__(self, options):
        self.options = options

    def generate(self, way, prompt):
        command = [self.options.specdec, "--threads", str(self.options.threads), "--dtype", "float32",
                   "--quiet", "generate", self.options.model, "--tokens", ",".join(map(str, prompt)),
                   "--max-new-tokens", str(self.options.tokens), "--ignore-eos", "--json",
                   "--strategy", strategy_of(way, self.options)]
        out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        figures = out["statistics"]
        return {"tokens": out["tokens"], "drafted": figures["drafted"],
                "accepted": figures["accepted"], "steps": figures["steps"],
                "seconds": figures["prefill_seconds"] + figures["decode_seconds"]}


class Transformers:
    """Counts drafts by watching the candidate generators' two public methods."""

    def __init__(self, options):
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.generation import candidate_generator
        torch.set_num_threads(options.threads)
        self.torch = torch
        self.options = options
        load = {"dtype": torch.float32, "attn_implementation": "eager"}
        self.model = AutoModelForCausalLM.from_pretrained(options.model, **load).eval()
        self.draft = AutoModelForCausalLM.from_pretrained(options.draft, **load).eval()
        # An end that never comes: prompt lookup cannot do without one.
        self.model.generation_config.eos_token_id = self.model.config.vocab_size
        self.draft.generation_config.eos_token_id = self.model.config.vocab_size
        self.draft.generation_config.num_assistant_tokens = options.draft_length
        self.draft.generation_config.num_assistant_tokens_schedule = "constant"
        self.draft.generation_config.assistant_confidence_threshold = 0.0
        self.counts = {}
        for kind in (candidate_generator.AssistedCandidateGenerator,
                     candidate_generator.PromptLookupCandidateGenerator):
            self.watch(kind)

    def watch(self, kind):
        propose, observe = kind.get_candidates, kind.update_candidate_strategy

        def counted_propose(generator, input_ids, *rest, **named):
            found = propose(generator, input_ids, *rest, **named)
            self.counts["drafted"] += found[0].shape[1] - input_ids.shape[1]
            return found

        def counted_observe(generator, input_ids, scores, num_matches):
            self.counts["accepted"] += int(num_matches)
            self.counts["steps"] += 1
            return observe(generator, input_ids, scores, num_matches)

        kind.get_candidates, kind.update_candidate_strategy = counted_propose, counted_observe

    def generate(self, way, prompt):
        self.counts = {"drafted": 0, "accepted": 0, "steps": 0}
        more = {"plain": {}, "draft model": {"assistant_model": self.draft},
                "prompt lookup": {"prompt_lookup_num_tokens": self.options.draft_length}}[way]
        ids = self.torch.tensor([prompt])
        begin = time.perf_counter()
        out = self.model.generate(ids, attention_mask=self.torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=self.options.tokens, pad_token_id=0, **more)
        seconds = time.perf_counter() - begin
        return {"tokens": out[0, len(prompt):].tolist(), "seconds": seconds, **self.counts}


def read_prompts(options):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    lines = Path(options.prompts).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    chosen = [rows[i * len(rows) // options.limit] for i in range(min(options.limit, len(rows)))]
    bos = json.loads((Path(options.model) / "config.json").read_text())["bos_token_id"]
    texts = [row["turns"][0] if "turns" in row else row["prompt"] for row in chosen]
    return [[bos] + tokenizer(text, add_special_tokens=False).input_ids for text in texts]


def check_same(way, prompt, ours, theirs):
    for position, (mine, other) in enumerate(zip(ours["tokens"], theirs["tokens"])):
        if mine != other:
            sys.exit(f"{way}: the two gave different tokens, first at new token {position} of the prompt "
                     f"of {len(prompt)} tokens ({mine} and {other}); nothing is compared")
    # transformers may go a token beyond the limit with prompt lookup.
    if len(ours["tokens"]) > len(theirs["tokens"]):
        sys.exit(f"{way}: {len(ours['tokens'])} and {len(theirs['tokens'])} tokens; nothing is compared")


def compare(way, prompts, programs, options):
    rounds = []
    for index in range(options.rounds + 1):
        sums = [dict.fromkeys(("tokens", "seconds", "drafted", "accepted", "steps"), 0) for _ in programs]
        for prompt in prompts:
            results = [program.generate(way, prompt) for program in programs]
            check_same(way, prompt, *results)
            for total, result in zip(sums, results):
                for key in total:
                    total[key] += len(result[key]) if key == "tokens" else result[key]
        if index > 0:  # the first round warms up
            rounds.append(sums)
    speeds = [[one[i]["tokens"] / one[i]["seconds"] for one in rounds] for i in range(2)]
    mine, other = (statistics.median(values) for values in speeds)
    ours, theirs = rounds[-1]
    return {"way": way, "specdec tokens/s": round(mine, 1), "transformers tokens/s": round(other, 1),
            "ratio": round(mine / other, 2), "specdec accepted/drafted":
            f"{ours['accepted']}/{ours['drafted']}", "transformers accepted/drafted":
            f"{theirs['accepted']}/{theirs['drafted']}", "specdec steps": ours["steps"],
            "transformers steps": theirs["steps"] or theirs["tokens"]}


def main():
    options = parse_options()
    try:
        programs = [Specdec(options), Transformers(options)]
        prompts = read_prompts(options)
    except ImportError as error:
        sys.exit(f"{error}. Install it into an environment of its own: see the head of this file")
    rows = [compare(way, prompts, programs, options) for way in ("plain", "draft model", "prompt lookup")]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.threads} threads, load average {os.getloadavg()[0]:.1f}; the same tokens throughout")
    for row in rows:
        print("; ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
