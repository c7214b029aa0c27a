#!/usr/bin/env python3
"""What `specdec convert` writes, read by llama.cpp, gguf-py and transformers.

    llama_peer.py says what must be installed into VENV.
    VENV/bin/python bench/peers/convert.py [FOLDER ...] [--json]

FOLDER: golden sets (config.json, model.safetensors, golden.safetensors); the default are those of tests/data.
Each is converted to GGUF in float32, which llama.cpp must decode into the golden greedy tokens (where it knows
all that the model says: --json rows name what it leaves out), and back to a folder, which transformers must.
Q8_0 tensors must be gguf-py's bit for bit. With models/smollm2 (scripts/get_smollm2) its tokenizer is compared
too: ids of the folder by `tokenizers`, and of the GGUF file made of it by llama.cpp, on texts of every kind.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy
from safetensors.numpy import load_file

from llama_peer import LlamaCpp

ROOT = Path(__file__).resolve().parent.parent.parent
SMOLLM2 = ROOT / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = ["Hello, world! It's 12345 o'clock.", "a  b\n\n\tc ", "caf\u00e9 na\u00efve \u4e16\u754c \U0001f600",
         "x = [i**2 for i in range(10)]", "<|im_start|>user", "\u00bd \u216b \u00b2", " leading",
         "\r\nCRLF\r\n", "don't WE'LL"]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--specdec", default=str(ROOT / "build/specdec"))
    parser.add_argument("--json", action="store_true", help="print rows instead of a text")
    return parser.parse_args()


def convert(options, source, target, dtype=None):
    """Returns what the program notes."""
    command = [options.specdec, "convert", str(source), str(target), "--quiet"]
    done = subprocess.run(command + (["--dtype", dtype] if dtype else []), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return [line[6:] for line in done.stderr.splitlines() if line.startswith("note: ")]


def agreement(wanted, found):
    equal = 0
    while equal < len(wanted) and equal < len(found) and wanted[equal] == found[equal]:
        equal += 1
    return f"{equal}/{len(wanted)}"


def llama_greedy(path, golden):
    peer = LlamaCpp(path, threads=1, context=256, exact=True)
    prompt = [int(token) for token in golden["prompt"]]
    tokens = peer.greedy(prompt, len(golden["greedy"]))[0]
    peer.truncate(0)
    ids = [int(token) for token in golden["tokens"]]
    difference = float(numpy.abs(peer.forward(ids, rows=len(ids)) - golden["logits"]).max())
    peer.close()
    return agreement(list(golden["greedy"]), tokens), difference


def transformers_greedy(folder, golden):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = [int(token) for token in golden["prompt"]]
    with torch.no_grad():
        for _ in golden["greedy"]:
            tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return agreement(list(golden["greedy"]), tokens[len(golden["prompt"]):])


def same_blocks(plain, blocks):
    """Whether each Q8_0 tensor is what gguf-py makes of the float32 one: (equal, all)."""
    values = {tensor.name: tensor for tensor in gguf.GGUFReader(plain).tensors}
    equal = count = 0
    for tensor in gguf.GGUFReader(blocks).tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0:
            wanted = gguf.quants.quantize(numpy.array(values[tensor.name].data), tensor.tensor_type)
            equal += bool((wanted.reshape(-1) == numpy.array(tensor.data).reshape(-1)).all())
            count += 1
    return f"{equal}/{count}"


def check_set(options, folder, work):
    golden = load_file(folder / "golden.safetensors")
    plain, blocks, back = work / "f32.gguf", work / "q8_0.gguf", work / "back"
    notes = [note for note in convert(options, folder, plain, "float32") if "llama.cpp" in note]
    convert(options, folder, blocks, "int8")
    convert(options, plain, back)
    tokens, difference = llama_greedy(plain, golden)
    return {"model": folder.name, "llama.cpp, greedy": tokens, "logits differ by": f"{difference:.1e}",
            "transformers, greedy": transformers_greedy(back, golden),
            "Q8_0 tensors as gguf-py": same_blocks(plain, blocks),
            "llama.cpp leaves out": "; ".join(notes) or "nothing"}


def check_smollm2(options, work):
    """The real model through a folder to GGUF again: tokenizers and greedy tokens."""
    from tokenizers import Tokenizer
    folder, again = work / "smollm2", work / "smollm2.gguf"
    convert(options, SMOLLM2, folder)
    convert(options, folder, again)
    first, second = LlamaCpp(SMOLLM2, 1), LlamaCpp(again, 2, exact=True)
    hub = Tokenizer.from_file(str(folder / "tokenizer.json"))
    hub.encode_special_tokens = True
    same = [first.tokenize(text) == second.tokenize(text) == hub.encode(text, add_special_tokens=False).ids
            for text in TEXTS]
    prompt = first.tokenize("The capital of France is")
    wanted = subprocess.run([options.specdec, "generate", str(SMOLLM2), "--tokens", ",".join(map(str, prompt)),
                             "--max-new-tokens", "24", "--ignore-eos", "--dtype", "float32", "--json"],
                            check=True, capture_output=True, text=True).stdout
    return {"model": "smollm2",
            "llama.cpp, greedy": agreement(json.loads(wanted)["tokens"], second.greedy(prompt, 24)[0]),
            "texts with equal ids": f"{sum(same)}/{len(same)}"}


def main():
    options = parse_options()
    folders = [Path(folder) for folder in options.folders] or sorted(
        folder.parent for folder in (ROOT / "tests/data").glob("*-a/golden.safetensors")
        if "eagle" not in folder.parent.name)
    rows = []
    for folder in folders:
        with tempfile.TemporaryDirectory() as work:
            rows.append(check_set(options, folder, Path(work)))
    if SMOLLM2.exists() and not options.folders:
        with tempfile.TemporaryDirectory() as work:
            rows.append(check_smollm2(options, Path(work)))
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(", ".join(f"{key}: {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
