#!/usr/bin/env python3
"""SmolLM2-135M-Instruct in specdec and in llama.cpp: tokens a second, and what forwards of 1 to 8 tokens cost.

    llama_peer.py says what must be installed into VENV; scripts/get_smollm2 fetches the model.
    VENV/bin/python bench/peers/smollm2.py [--tools FOLDER] [--limit N] [--tokens N] [--threads N] [--json]

In the model's own chat format; decoding.py says how it is measured. llama.cpp runs the shipped Q4_1, Q4_0 (made here by
its own quantizer from the same values in float32), bfloat16 and float32; plainly, with prompt lookup as llama-cpp-python
does it, and with --tools, a folder with llama-lookup, llama-lookahead and llama-speculative-simple of the same sources
(cmake -S vendor/llama.cpp in llama-cpp-python's source package), with these.
"""
import sys

import llama_cpp

from decoding import (ROOT, STRATEGIES, LlamaPython, Model, Specdec, compare, llama_tools, parse_options, quantize, run)

PROMPTS = ROOT / "configs/prompts/smollm2.jsonl"
MODEL = Model(path=ROOT / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", fetched_by="scripts/get_smollm2",
              format="Q4_1", ends=(0, 2), special=True,  # <|endoftext|>, <|im_end|>
              text="<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
                   "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n")


def llama_files(options, work):
    """The model in llama.cpp's formats: name -> file."""
    forms = {"F32": work / "f32.gguf", "BF16": work / "bf16.gguf", "Q4_0": work / "q4_0.gguf"}
    run([options.specdec, "convert", MODEL.path, forms["F32"], "--dtype", "float32", "--quiet"])
    run([options.specdec, "convert", MODEL.path, forms["BF16"], "--dtype", "bfloat16", "--quiet"])
    quantize(forms["F32"], forms["Q4_0"], llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0)
    return {"Q4_1": MODEL.path, **forms}


def make_ways(options, work):
    forms = llama_files(options, work)
    stored = ["--dtype", "stored", "--activations", "int8"]
    ways = [Specdec(options, MODEL, way, stored, MODEL.format) for way in STRATEGIES]
    ways += [Specdec(options, MODEL, "plain", ["--dtype", dtype], name)
             for dtype, name in (("bfloat16", "BF16"), ("float32", "F32"))]
    ways += [LlamaPython(options, MODEL, "plain", path, name) for name, path in forms.items()]
    ways.append(LlamaPython(options, MODEL, "prompt lookup", forms["Q4_0"], "Q4_0"))
    return ways + llama_tools(options, forms["Q4_0"], "Q4_0")


def main():
    options = parse_options(__doc__, PROMPTS)
    compare(options, MODEL, lambda work: make_ways(options, work))


if __name__ == "__main__":
    sys.exit(main())
