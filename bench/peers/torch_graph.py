#!/usr/bin/env python3
"""A plain PyTorch forward of the shapes in bench/shapes/ on a GPU, with a static cache and CUDA graphs:
what bench/cuda_kernels_bench.cpp stands beside. Random bfloat16 weights, batch 1. A JSON object a line.

    bench/peers/torch_graph.py                        Gemma 3 270M, 1B, 4B and 12B
    bench/peers/torch_graph.py --shapes gemma3-1b --tokens 1,8
    bench/peers/torch_graph.py --device cpu --tiny    tests this file, without graphs
"""
import argparse
import json
import math
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

SHAPES = Path(__file__).resolve().parent.parent / "shapes"
REPETITIONS = 9


def random_matrix(outputs, inputs, like):
    return torch.randn(outputs, inputs, **like) / math.sqrt(inputs)


class Layer:
    def __init__(self, config, window, capacity, like):
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim, self.window = config["head_dim"], window
        self.qkv = random_matrix((self.heads + 2 * self.kv_heads) * self.dim, hidden, like)
        self.o = random_matrix(hidden, self.heads * self.dim, like)
        self.gate_up = random_matrix(2 * inner, hidden, like)
        self.down = random_matrix(hidden, inner, like)
        self.norms = [torch.ones(hidden, **like) for _ in range(4)]
        self.q_norm, self.k_norm = torch.ones(self.dim, **like), torch.ones(self.dim, **like)
        self.keys = torch.randn(1, self.kv_heads, capacity, self.dim, **like)
        self.values = torch.randn(1, self.kv_heads, capacity, self.dim, **like)

    def matrices(self):
        return [self.qkv, self.o, self.gate_up, self.down]

    def norm(self, x, index):
        return F.rms_norm(x, x.shape[-1:], self.norms[index], 1e-6)

    def rotated(self, x, norm, angles):
        x = F.rms_norm(x, x.shape[-1:], norm, 1e-6)
        low, high = x.chunk(2, -1)
        return x * angles[0] + torch.cat((-high, low), -1) * angles[1]

    def attend(self, x, positions, angles, mask):
        n = x.shape[0]
        q, k, v = F.linear(x, self.qkv).view(1, n, -1, self.dim).transpose(1, 2).split(
            [self.heads, self.kv_heads, self.kv_heads], 1)
        self.keys.index_copy_(2, positions, self.rotated(k, self.k_norm, angles))
        self.values.index_copy_(2, positions, v)
        mixed = F.scaled_dot_product_attention(self.rotated(q, self.q_norm, angles), self.keys, self.values,
                                               attn_mask=mask, enable_gqa=True)
        return F.linear(mixed.transpose(1, 2).reshape(n, -1), self.o)

    def forward(self, x, positions, angles, masks):
        mask = masks[1 if self.window else 0]
        x = x + self.norm(self.attend(self.norm(x, 0), positions, angles, mask), 1)
        gate, up = F.linear(self.norm(x, 2), self.gate_up).chunk(2, -1)
        return x + self.norm(F.linear(F.gelu(gate, approximate="tanh") * up, self.down), 3)


class Model:
    def __init__(self, config, capacity, like):
        self.config, self.capacity = config, capacity
        pattern = config["sliding_window_pattern"]
        self.layers = [Layer(config, (i + 1) % pattern != 0, capacity, like)
                       for i in range(config["num_hidden_layers"])]
        self.embedding = random_matrix(config["vocab_size"], config["hidden_size"], like)
        turns = torch.arange(capacity, device=like["device"])[:, None] / 10000.0 ** (
            torch.arange(0, config["head_dim"], 2, device=like["device"]) / config["head_dim"])
        turns = torch.cat((turns, turns), -1)
        self.cosines, self.sines = turns.cos().to(like["dtype"]), turns.sin().to(like["dtype"])

    def read_bytes(self, context):
        """Of weights and caches in a forward."""
        weights = sum(m.numel() for layer in self.layers for m in layer.matrices()) + self.embedding.numel()
        window = self.config["sliding_window"]
        seen = sum(min(context, window) if layer.window else context for layer in self.layers)
        cache = 2 * seen * self.config["num_key_value_heads"] * self.config["head_dim"]
        return (weights + cache) * self.embedding.element_size()

    def forward(self, tokens, positions):
        reach = torch.arange(self.capacity, device=positions.device)[None, :]
        full = reach <= positions[:, None]
        masks = (full, full & (reach > positions[:, None] - self.config["sliding_window"]))
        angles = self.cosines[positions], self.sines[positions]
        x = F.embedding(tokens, self.embedding) * math.sqrt(self.config["hidden_size"])
        for layer in self.layers:
            x = layer.forward(x, positions, angles, masks)
        return F.linear(F.rms_norm(x, x.shape[-1:]), self.embedding).argmax(-1)


def seconds_of(call, device):
    """Median seconds of a call."""
    if device == "cpu":
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin
    measured = []
    for _ in range(REPETITIONS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        measured.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(measured)


def graph_of(call, device):
    """The call, captured after a warm-up."""
    if device == "cpu":
        return call
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    return graph.replay


def copy_rate(device):
    size = (1 << 30) if device != "cpu" else 1 << 20
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * size / seconds_of(lambda: target.copy_(source), device)


def report(row, seconds, read, rate):
    print(json.dumps(row | {"microseconds": seconds * 1e6, "bytes": read, "bytes_per_second": read / seconds,
                            "share_of_copy": read / seconds / rate}), flush=True)


def run_forwards(name, config, arguments, like, rate):
    context, widths = arguments.context, [int(n) for n in arguments.tokens.split(",")]
    model = Model(config, context + max(widths), like)
    one = None
    for n in widths:
        tokens = torch.randint(0, config["vocab_size"], (n,), device=like["device"])
        positions = torch.arange(context, context + n, device=like["device"])
        call = graph_of(lambda t=tokens, p=positions: model.forward(t, p), like["device"])
        seconds = seconds_of(call, like["device"])
        one = one or seconds
        report({"bench": "torch_forward", "shape": name, "format": "bfloat16", "context": context, "rows": n,
                "v": seconds / one}, seconds, model.read_bytes(context), rate)


def run_attention(name, config, arguments, like, rate):
    """scaled_dot_product_attention at the contexts of the kernels' benchmark, over caches that are cold."""
    heads, kv_heads, dim = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    for context in [1024, 8192, 16384, 32768] if not arguments.tiny else [64]:
        read = 2 * context * kv_heads * dim * 2
        copies = min(256, max(1, (256 << 20) // read)) if not arguments.tiny else 1
        keys = torch.randn(copies, 1, kv_heads, context, dim, **like)
        values = torch.randn(copies, 1, kv_heads, context, dim, **like)
        for nodes in (1, 8):
            queries = torch.randn(1, heads, nodes, dim, **like)

            def call(queries=queries, keys=keys, values=values):
                for copy in range(len(keys)):
                    F.scaled_dot_product_attention(queries, keys[copy], values[copy], enable_gqa=True)

            seconds = seconds_of(graph_of(call, like["device"]), like["device"]) / copies
            report({"bench": "torch_attention", "shape": name, "context": context, "nodes": nodes,
                    "cache": "bfloat16"}, seconds, read, rate)


def tiny(config):
    return config | {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "head_dim": 16,
                     "vocab_size": 50, "sliding_window": 8}


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="gemma3-270m,gemma3-1b,gemma3-4b,gemma3-12b")
    parser.add_argument("--tokens", default="1,4,8,32,64")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="shapes of a few numbers")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("skipped: no GPU")
        raise SystemExit(77)
    like = {"dtype": torch.bfloat16, "device": arguments.device}
    rate = copy_rate(arguments.device)
    card = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    print(json.dumps({"bench": "torch_device", "card": card, "torch": torch.__version__,
                      "copy_bytes_per_second": rate}), flush=True)
    for name in arguments.shapes.split(","):
        config = json.loads((SHAPES / name / "config.json").read_text(encoding="utf-8"))
        config = tiny(config) if arguments.tiny else config
        run_forwards(name, config, arguments, like, rate)
        run_attention(name, config, arguments, like, rate)
        if arguments.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
