#!/usr/bin/env python3
"""How well `specdec simulate` predicts: recorded once, compared with what is then measured.

    bench/check_predictions.py [--tokens 128] [--json]

Out of sample: chains of 8 are recorded on the first half of configs/prompts/bench.jsonl; chains of 1, 2 and 4
and a small tree are predicted, and measured on the other half. In sample: all lengths from 1 to 8 are predicted
from the traces of one run on all prompts, and have to lie in the 95 % intervals of what each length does there. At
temperature 0 and 1, the shipped pair, one thread. Times need a machine that does nothing else.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HALF = 48
TREE = [[0], [1], [0, 0]]
DRAW = "{type: draft_model, weights: models/draft}"
BEST = "{type: draft_model, weights: models/draft, sample: false}"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a prompt")
    parser.add_argument("--specdec", default=str(ROOT / "build/specdec"))
    parser.add_argument("--json", action="store_true", help="print rows instead of a table")
    return parser.parse_args()


def chain(name, length, drafter=DRAW):
    return f"{{name: {name}, type: speculative, draft_length: {length}, drafter: {drafter}}}"


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = Path(folder)

    def run(self, name, temperature, prompts, strategies, trace=""):
        """Runs an experiment; returns its folder and the summary's rows of all prompts."""
        out = self.folder / f"{name}_{temperature}"
        config = self.folder / f"{name}_{temperature}.yaml"
        config.write_text("\n".join([
            f"name: {name}", "seed: 1", "threads: 1", "warm_up: 3",
            "model: {type: gemma, weights: models/target, dtype: float32, device: cpu}",
            f"prompts: {{file: {ROOT}/configs/prompts/bench.jsonl, max_prompt_tokens: 1024, {prompts}}}",
            f"sampling: {{temperature: {temperature}}}", f"max_new_tokens: {self.options.tokens}", trace,
            "strategies:", "  - {type: autoregressive}"] + [f"  - {s}" for s in strategies]) + "\n",
            encoding="utf-8")
        subprocess.run([self.options.specdec, "run", str(config), "--out", str(out), "--quiet"], cwd=ROOT,
                       check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        return out, {row["strategy"]: row for row in summary["rows"] if row["category"] is None}

    def simulate(self, run, strategy, *shapes):
        command = [self.options.specdec, "simulate", str(run), "--strategy", strategy, "--json", *shapes]
        out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        return json.loads(out)["shapes"]

    def out_of_sample(self, temperature):
        trace = "trace: {depth: 8, width: 3}"
        recorded, _ = self.run("record", temperature, f"limit: {HALF}",
                               [chain("draws", 8), chain("best", 8, BEST)], trace)
        tree = f"{{name: tree, type: speculative, tree: {{type: static, paths: {TREE}}}, drafter: {BEST}}}"
        _, measured = self.run("measure", temperature, f"skip: {HALF}",
                               [chain(f"chain_{n}", n) for n in (1, 2, 4)] + [tree])
        predicted = {f"chain_{shape['depth']}": shape
                     for shape in self.simulate(recorded, "draws", "--lengths", "1,2,4")}
        shapes = self.simulate(recorded, "best", "--lengths", "1", "--tree", json.dumps(TREE))
        predicted["tree"] = next(shape for shape in shapes if shape["tree"])
        for name, shape in predicted.items():
            row = measured[name]
            yield {"check": "other half", "temperature": temperature, "shape": name,
                   "tokens/step": round(shape["tokens_per_step"], 3),
                   "measured tokens/step": round(row["tokens_per_step"], 3),
                   "off by %": round(100 * (shape["tokens_per_step"] / row["tokens_per_step"] - 1), 1),
                   "speed-up": round(shape["speedup"], 3), "measured speed-up": round(row["speedup"], 3),
                   "speed-up off by %": round(100 * (shape["speedup"] / row["speedup"] - 1), 1)}

    def in_sample(self, temperature):
        run, _ = self.run("record_all", temperature, "limit: 0", [chain("draws", 8)], "trace: {depth: 8, width: 1}")
        _, measured = self.run("all", temperature, "limit: 0", [chain(f"chain_{n}", n) for n in range(1, 9)])
        for shape in self.simulate(run, "draws", "--lengths", ",".join(map(str, range(1, 9)))):
            low, high = measured[f"chain_{shape['depth']}"]["tokens_per_step_interval_95"]
            yield {"check": "95 % interval", "temperature": temperature, "shape": f"chain_{shape['depth']}",
                   "tokens/step": round(shape["tokens_per_step"], 3), "low": round(low, 3),
                   "high": round(high, 3), "inside": low <= shape["tokens_per_step"] <= high}


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        rows = [row for t in (0, 1) for check in (bench.out_of_sample, bench.in_sample) for row in check(t)]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
