#!/usr/bin/env python3
"""Gemma 3 270M in specdec and in llama.cpp: tokens a second, and what forwards of 1 to 8 tokens cost.

    llama_peer.py says what must be installed into VENV; scripts/get_gemma3 fetches the model.
    VENV/bin/python bench/peers/gemma3.py [--tools FOLDER] [--limit N] [--tokens N] [--threads N] [--json]

Continuations of the texts of configs/gemma3.yaml; decoding.py says how it is measured. Both programs run the same file
(Q4_K_M): specdec with its inputs rounded to 8 bits, as llama.cpp does, and without; llama.cpp plainly, with prompt
lookup as llama-cpp-python does it, and with --tools with the programs that smollm2.py names.
"""
import sys

from decoding import ROOT, STRATEGIES, LlamaPython, Model, Specdec, compare, llama_tools, parse_options

PROMPTS = ROOT / "configs/prompts/gemma3.jsonl"
MODEL = Model(path=ROOT / "models/gemma3/gemma-3-270m.Q4_K_M.gguf", fetched_by="scripts/get_gemma3", format="Q4_K_M",
              ends=(1, 106))  # <eos>, <end_of_turn>


def make_ways(options, work):
    del work
    rounded = ["--dtype", "stored", "--activations", "int8"]
    ways = [Specdec(options, MODEL, way, rounded, "Q4_K_M") for way in STRATEGIES]
    ways.append(Specdec(options, MODEL, "plain", ["--dtype", "stored"], "Q4_K_M, inputs not rounded"))
    ways += [LlamaPython(options, MODEL, way, MODEL.path, "Q4_K_M") for way in ("plain", "prompt lookup")]
    return ways + llama_tools(options, MODEL.path, "Q4_K_M")


def main():
    options = parse_options(__doc__, PROMPTS, limit=30, tokens=96)
    compare(options, MODEL, lambda work: make_ways(options, work))


if __name__ == "__main__":
    sys.exit(main())
