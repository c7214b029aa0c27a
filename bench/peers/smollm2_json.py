#!/usr/bin/env python3
"""Records by JSON Schema from SmolLM2-135M-Instruct: specdec's ways to draft beside llama.cpp's grammar sampler.

    llama_peer.py says what must be installed into VENV, and jsonschema; scripts/get_smollm2 fetches the model.
    VENV/bin/python bench/peers/smollm2_json.py [--limit N] [--tokens N] [--threads N] [--json]

Greedy, over the prompts of configs/smollm2_json.yaml, each with its own schema, which llama.cpp gets as the GBNF
that its own converter makes. Both get the same token ids; their outputs may differ, since llama.cpp leaves the
white space to the model. For each prompt all ways take turns. Rates are medians over prompts with 95 %
intervals (bootstrap); "valid" counts outputs that are JSON of their schema, by python-jsonschema.
"""
import json
import sys
import tempfile
from pathlib import Path

import jsonschema
from llama_cpp import LlamaGrammar

import decoding
import smollm2
from llama_peer import LlamaCpp

PROMPTS = decoding.ROOT / "configs/prompts/smollm2_json.jsonl"
SUFFIX = "{type: speculative, draft_length: %d, drafter: {type: suffix}%s}"
STRATEGIES = {"plain": "{type: autoregressive, grammar: {forced: false}}",
              "forced tokens": "{type: autoregressive}",
              "free draft": SUFFIX % (4, ", grammar: {mask_drafts: false, forced: false}"),
              "masked draft": SUFFIX % (4, ", grammar: {forced: false}"),
              "forced draft": SUFFIX % (6, "")}
GRAMMAR = "{type: json_schema, file: %s, order: schema, escapes: minimal, whitespace: spaced}"


class Specdec:
    engine = "specdec"
    format = "Q4_1"

    def __init__(self, options, way):
        self.options, self.way = options, way

    def generate(self, prompt):
        options = self.options
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as schema:
            json.dump(prompt["schema"], schema)
            schema.flush()
            out = decoding.run([options.specdec, "--threads", options.threads, "--dtype", "stored", "--activations",
                               "int8", "--quiet", "generate", smollm2.MODEL.path, "--tokens",
                               ",".join(map(str, prompt["ids"])), "--max-new-tokens", options.tokens, "--json",
                               "--strategy", STRATEGIES[self.way], "--grammar", GRAMMAR % schema.name]).stdout
        out = json.loads(out)
        figures = out["statistics"]
        return {"text": out["text"], "tokens": len(out["tokens"]), "forwards": figures["steps"] + 1,
                "prompt_seconds": figures["prefill_seconds"], "seconds": figures["decode_seconds"]}


class Llama:
    engine = "llama.cpp"
    way = "grammar sampler"

    def __init__(self, options, path, name):
        self.options, self.format = options, name
        self.peer = LlamaCpp(path, options.threads, context=2048)
        self.peer.greedy([1, 2, 3], 4)  # pages of the file, threads

    def generate(self, prompt):
        gbnf = LlamaGrammar.from_json_schema(json.dumps(prompt["schema"]))._grammar
        tokens, prompt_seconds, seconds = self.peer.greedy_in_grammar(prompt["ids"], self.options.tokens, gbnf,
                                                                      ends=smollm2.MODEL.ends)
        return {"text": self.peer.text(tokens), "tokens": len(tokens), "forwards": len(tokens),
                "prompt_seconds": prompt_seconds, "seconds": seconds}


def is_valid(text, schema):
    try:
        jsonschema.validate(json.loads(text), schema)
        return True
    except (ValueError, jsonschema.ValidationError):
        return False


def row(way, answers, prompts):
    valid = sum(is_valid(answer["text"], prompt["schema"]) for answer, prompt in zip(answers, prompts))
    seconds = [answer["seconds"] + answer["prompt_seconds"] for answer in answers]
    return {"program": way.engine, "weights": way.format, "way": way.way,
            "tokens/s": decoding.with_interval([decoding.rate(answer) for answer in answers]),
            "seconds a record": decoding.with_interval(seconds, 2),
            "tokens/forward": round(sum(a["tokens"] for a in answers) / sum(a["forwards"] for a in answers), 2),
            "valid": f"{valid}/{len(answers)}"}


def main():
    options = decoding.parse_options(__doc__, prompts=PROMPTS, limit=30, tokens=512)
    prompts = decoding.read_prompts(options, smollm2.MODEL)
    with tempfile.TemporaryDirectory() as work:
        ways = [Specdec(options, way) for way in STRATEGIES]
        ways += [Llama(options, path, name) for name, path in smollm2.llama_files(options, Path(work)).items()
                 if name.startswith("Q4")]
        ways = decoding.chosen(options, ways)
        answers = decoding.take_turns(ways, prompts)
    rows = [row(way, answers[way], prompts) for way in ways]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print("\n".join(", ".join(f"{key}: {value}" for key, value in one.items()) for one in rows))


if __name__ == "__main__":
    sys.exit(main())
