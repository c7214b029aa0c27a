#!/usr/bin/env python3
"""Tiny random checkpoints by transformers, with random legal configs, whose numbers specdec must give.

    llama_peer.py says what must be installed into VENV; transformers beside it.
    VENV/bin/python bench/peers/held_out.py FAMILY [--count 20] [--seed 0] [--out FOLDER]

The reference reads the folder that specdec reads, with the keys as they were rewritten, in float32 with eager
attention. Compared are the logits of 40 tokens, and 30 greedy tokens, decoded plainly and with drafts. Each
checkpoint is a line: equal, DIFFERENT, LOSSY, GREEDY, refused (with the message) or what the reference refuses.
"""
import argparse
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = Path(__file__).resolve().parent.parent.parent
FULL, SLIDING = "full_attention", "sliding_attention"
DRAFTS = "{type: speculative, drafter: {type: prompt_lookup, min_ngram: 1}, verifier: block}"


def sizes(draw):
    kv_heads = draw.choice([1, 1, 2, 3])
    heads = kv_heads * draw.choice([1, 2, 3])
    return {"vocab_size": draw.choice([97, 130, 193, 251, 320]), "hidden_size": heads * draw.choice([8, 12, 20, 24]),
            "intermediate_size": draw.choice([24, 40, 56, 96, 100]), "num_hidden_layers": draw.choice([2, 3, 4, 5, 7]),
            "num_attention_heads": heads, "num_key_value_heads": kv_heads,
            "head_dim": draw.choice([4, 6, 8, 10, 16, 24, 40, 80]), "rms_norm_eps": draw.choice([1e-6, 1e-5, 1e-3]),
            "max_position_embeddings": draw.choice([64, 128, 512]), "bos_token_id": 2, "eos_token_id": 1,
            "pad_token_id": 0}


def layer_types(draw, layers):
    return [draw.choice([SLIDING, FULL]) for _ in range(layers)]


def rope(draw, kinds):
    kind = draw.choice(kinds)
    out = {"rope_theta": draw.choice([100.0, 1e4, 5e4, 1e6]), "rope_type": kind}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        out["factor"] = draw.choice([1.5, 2.0, 4.0, 8.0])
    if kind in ("llama3", "yarn"):
        out["original_max_position_embeddings"] = draw.choice([16, 32, 64])
    if kind == "llama3":
        out.update(low_freq_factor=draw.choice([0.5, 1.0]), high_freq_factor=4.0)
    return out


def llama(family, draw):
    config = sizes(draw)
    if family == "qwen2":
        del config["head_dim"]
        config["hidden_size"] = config["num_attention_heads"] * draw.choice([8, 12, 16, 24])
    config["tie_word_embeddings"] = draw.random() < 0.4
    config["rope_parameters"] = rope(draw, ["default", "default", "linear", "llama3", "llama3", "yarn", "dynamic"])
    config["attention_bias"] = family in ("llama", "qwen3") and draw.random() < 0.4
    config["mlp_bias"] = family == "llama" and draw.random() < 0.4
    if family == "mistral":
        config["sliding_window"] = draw.choice([None, 3, 5, 9])
    if family.startswith("qwen"):
        config.update(use_sliding_window=draw.random() < 0.6, sliding_window=draw.choice([3, 6]),
                      max_window_layers=draw.choice([0, 1, 2]))
        if config["use_sliding_window"] and draw.random() < 0.4:
            config["layer_types"] = layer_types(draw, config["num_hidden_layers"])
    return config


def gemma(family, draw):
    config = sizes(draw)
    config["attention_bias"] = draw.random() < 0.3
    config["tie_word_embeddings"] = draw.random() < 0.75
    config["rope_parameters"] = rope(draw, ["default", "default", "linear"])
    if family == "gemma":
        config["hidden_act"] = draw.choice(["gelu", "gelu_new", "gelu_pytorch_tanh"])
        return config
    config.update(query_pre_attn_scalar=draw.choice([7, 16, 144]), sliding_window=draw.choice([2, 3, 5, 9]),
                  final_logit_softcapping=draw.choice([None, 3.0, 30.0]),
                  attn_logit_softcapping=draw.choice([None, 1.0, 5.0]))
    if draw.random() < 0.6:
        config["layer_types"] = layer_types(draw, config["num_hidden_layers"])
    if family == "gemma3_text":
        config["sliding_window_pattern"] = draw.choice([2, 3, 6])
        config["rope_parameters"] = {kind: rope(draw, ["default", "linear"]) for kind in (FULL, SLIDING)}
    return config


def shared_layers(draw, types):
    """So many last layers that each finds one of its type before them."""
    counts = [count for count in range(len(types)) if set(types[:len(types) - count]) == set(types)]
    return draw.choice(counts)


def gemma3n(_, draw):
    config = gemma("gemma3_text", draw)
    for key in ("query_pre_attn_scalar", "attn_logit_softcapping", "sliding_window_pattern"):
        del config[key]
    layers = config["num_hidden_layers"]
    types = layer_types(draw, layers)
    config.update(tie_word_embeddings=True, final_logit_softcapping=draw.choice([3.0, 10.0, 30.0]), layer_types=types,
                  vocab_size_per_layer_input=config["vocab_size"] - draw.choice([0, 16]),
                  hidden_size_per_layer_input=draw.choice([6, 8, 20]), altup_active_idx=draw.choice([0, 1]),
                  altup_num_inputs=draw.choice([2, 3, 4]), altup_correct_scale=draw.random() < 0.6,
                  laurel_rank=draw.choice([4, 6]), num_kv_shared_layers=shared_layers(draw, types),
                  activation_sparsity_pattern=[draw.choice([0.0, 0.5, 0.95]) for _ in range(layers)])
    return config


def gemma4(_, draw):
    config = gemma("gemma2", draw)
    for key in ("query_pre_attn_scalar", "attn_logit_softcapping", "attention_bias"):
        del config[key]
    full = draw.choice([{"rope_type": "proportional", "partial_rotary_factor": draw.choice([0.25, 0.5, 1.0])},
                        {"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0},
                        {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 4.0}])
    types = layer_types(draw, config["num_hidden_layers"] - 1) + [FULL]
    per_layer, experts = draw.choice([0, 0, 6, 8, 20]), draw.choice([2, 4, 5, 8])
    config.update(layer_types=types, head_dim=draw.choice([8, 16, 24]), global_head_dim=draw.choice([16, 32, 48, 80]),
                  rope_parameters={FULL: {"rope_theta": 5e4, **full}, SLIDING: rope(draw, ["default"])},
                  hidden_size_per_layer_input=per_layer, attention_k_eq_v=draw.random() < 0.4,
                  vocab_size_per_layer_input=config["vocab_size"] - (draw.choice([0, 10]) if per_layer else 0),
                  num_global_key_value_heads=draw.choice([None, 1, config["num_attention_heads"]]),
                  enable_moe_block=draw.random() < 0.35, num_experts=experts,
                  moe_intermediate_size=draw.choice([8, 36]), top_k_experts=draw.choice([1, 2, experts]),
                  use_double_wide_mlp=draw.random() < 0.4, num_kv_shared_layers=shared_layers(draw, types))
    return config


FAMILIES = {"llama": llama, "mistral": llama, "qwen2": llama, "qwen3": llama, "gemma": gemma, "gemma2": gemma,
            "vaultgemma": gemma, "gemma3_text": gemma, "gemma3n_text": gemma3n, "gemma4_text": gemma4}


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if weight.dim() == 1:
            weight.data.add_(0.25 * noise)
        else:
            scale = 2.0 if "q_proj" in name or "k_proj" in name else 1.5 if "embed" in name else 1.0
            weight.data.copy_(noise * scale / weight.shape[-1] ** 0.5)
    for name, buffer in model.named_buffers():
        if "layer_scalar" in name:
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))


def spell_as_before(config):
    """The keys of transformers 4."""
    ropes = config.pop("rope_parameters")
    full = ropes.pop(FULL, ropes)
    if SLIDING in ropes:
        config["rope_local_base_freq"] = ropes[SLIDING]["rope_theta"]
    config["rope_theta"] = full.pop("rope_theta")
    config["rope_scaling"] = full if full["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")


def add_old_keys(family, draw, config):
    """Keys of transformers 4 beside those of 5: of Gemma 3 and 3n they count, of Gemma 4 they do not."""
    if family in ("gemma3_text", "gemma3n_text"):
        config["rope_scaling"] = draw.choice([{"factor": 4.0}, {"rope_type": "linear", "factor": 2.0},
                                              {"rope_type": "linear", "factor": 8.0, "rope_theta": 3e4}])
    elif family == "gemma4_text":
        config.update(rope_theta=500.0, rope_local_base_freq=70.0, rope_scaling={"type": "linear", "factor": 4.0})


def make_checkpoint(family, seed, folder):
    draw = random.Random(f"{family} {seed}")
    config = AutoConfig.for_model(family, **FAMILIES[family](family, draw))
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    randomize(model, seed)
    shutil.rmtree(folder, ignore_errors=True)
    dtype = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    model.to(dtype).save_pretrained(folder, max_shard_size=draw.choice(["5GB", "40KB"]))
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    if family != "gemma4_text" and draw.random() < 0.4:
        spell_as_before(saved)
    elif draw.random() < 0.3:
        add_old_keys(family, draw, saved)
    if draw.random() < 0.4:
        saved = {key: value for key, value in saved.items() if value is not False and value is not None
                 or "softcapping" in key or key == "sliding_window" or "tie" in key}
    path.write_text(json.dumps(saved, indent=1))


def reference(model, tokens):
    """[tokens, vocab]; by parts for Gemma 4, whose forward wants per-layer inputs where layers share keys."""
    with torch.no_grad():
        if model.config.model_type != "gemma4_text":
            return model(torch.tensor([tokens]), use_cache=False).logits[0]
        logits = model.lm_head(model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0])
        cap = model.config.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap


def specdec(options, *arguments):
    command = [options.specdec, *map(str, arguments), "--dtype", "float32"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None, f"refused with {done.returncode}: {done.stderr.strip()}"


def joined(tokens):
    return ",".join(map(str, tokens))


def compare_greedy(options, folder, model, prompt, ids):
    texts = []
    for strategy in ("{type: autoregressive}", DRAFTS):
        text, message = specdec(options, "generate", folder, "--tokens", joined(prompt), "--ignore-eos",
                                "--max-new-tokens", 30, "--json", "--strategy", strategy)
        if text is None:
            return message
        texts.append(json.loads(text)["tokens"])
    if texts[0] != texts[1]:
        return f"LOSSY: {texts}"
    if max(texts[0]) >= ids:
        return "equal logits; greedy tokens lie beyond Gemma 4's per-layer table, where the reference fails"
    rows = reference(model, prompt + texts[0])[len(prompt) - 1:-1]
    gap = max(float(row.max() - row[token]) for row, token in zip(rows, texts[0]))
    return f"GREEDY tokens are {gap:.1e} below the best" if gap > 1e-3 else None


def compare(options, folder, seed):
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        ids = model.config.vocab_size
        if model.config.model_type == "gemma4_text" and model.config.hidden_size_per_layer_input:
            ids = model.config.vocab_size_per_layer_input
        draw = random.Random(seed)
        tokens = [2] + [draw.randrange(3, ids) for _ in range(39)]
        wanted = reference(model, tokens)
    except Exception as error:
        return f"the reference refuses it: {type(error).__name__}: {error}"
    out = folder / "specdec.safetensors"
    text, message = specdec(options, "logits", folder, "--tokens", joined(tokens), "--out", out)
    if text is None:
        return message
    found = load_file(out)["logits"]
    difference = float((found - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))
    if not difference < 2e-4:
        return f"DIFFERENT by {difference:.1e} of the largest logit"
    return compare_greedy(options, folder, model, tokens[:12], ids) or f"equal ({difference:.1e})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/held_out"), help="where the checkpoints are left")
    parser.add_argument("--specdec", default=str(ROOT / "build/specdec"))
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        folder = options.out / f"{options.family}-{seed}"
        make_checkpoint(options.family, seed, folder)
        result = compare(options, folder, seed)
        wrong += result.startswith(("DIFFERENT", "LOSSY", "GREEDY"))
        print(f"{folder.name}: {result}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
