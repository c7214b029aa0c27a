#!/usr/bin/env python3
"""How well `specdec simulate` predicts: recorded once, compared with what is then measured.

    bench/check_predictions.py [--tokens 128] [--json]

Out of sample: chains of 8 are recorded on the first half of configs/prompts/bench.jsonl; chains of 1, 2 and 4
and a small tree are predicted, and measured on the other half. In sample: all lengths from 1 to 8 are predicted
from the traces of one run on all prompts, and have to lie in the 95 % intervals of what each length does there. Wall
clock: the measured speed-up beside tau / (g c + v(g)), with c and v measured apart by `specdec profile`; "prompt"
is what the drafter takes to read the prompt, in plain forwards a step, which that formula leaves out. At
temperature 0 and 1, the shipped models, one thread. Times need a machine that does nothing else.
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
HEADS = {"draft_model": DRAW, "eagle": "{type: eagle, weights: models/heads/eagle}", "mtp": "{type: mtp}"}
LENGTHS = (1, 2, 4)


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
            "model: {type: gemma, weights: models/target, device: cpu, include_mtp: true}",
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
                               [chain(f"chain_{n}", n) for n in LENGTHS] + [tree])
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

    def profile(self, temperature):
        """In plain forwards: c by drafter and length, v by new tokens, and what reading a token of the prompt takes."""
        out = self.folder / "profile.json"
        drafters = [part for drafter in HEADS.values() for part in ("--draft", drafter)]
        subprocess.run([self.options.specdec, "--threads", "1", "profile", "models/target", *drafters, "--lengths",
                        ",".join(map(str, LENGTHS)), "--contexts", "128", "--repeats", "400", "--temperature",
                        str(temperature), "--json", str(out)],
                       cwd=ROOT, check=True, capture_output=True)
        profile = json.loads(out.read_text(encoding="utf-8"))
        points = [(point["new_tokens"], point["seconds"][1]) for point in profile["target"]]
        plain = profile["plain"]["verify_seconds"][1]
        draft = {(drafter["name"], cost["drafted"]): cost["draft_seconds"][1] / cost["drafted"] / plain
                 for drafter in profile["drafters"] for cost in drafter["lengths"]}

        def verify(tokens):
            (low, a), (high, b) = next(pair for pair in zip(points, points[1:]) if pair[1][0] >= tokens)
            return (a + (b - a) * (tokens - low) / (high - low)) / points[0][1]

        reading = {drafter["name"]: drafter["prompt_token_seconds"] / plain for drafter in profile["drafters"]}
        return draft, verify, reading

    def wall_clock(self, temperature):
        strategies = [chain(f"{name}_{n}", n, drafter) for name, drafter in HEADS.items() for n in LENGTHS]
        run, measured = self.run("clock", temperature, f"limit: {HALF}", strategies)
        draft, verify, reading = self.profile(temperature)
        generations = [json.loads(line) for line in (run / "generations.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in HEADS:
            for length in LENGTHS:
                row = measured[f"{name}_{length}"]
                own = [one for one in generations if one["strategy"] == f"{name}_{length}"]
                prompt = reading[name] * sum(one["prompt_tokens"] for one in own) / sum(one["steps"] for one in own)
                step = length * draft[name, length] + verify(length + 1)
                expected = row["tokens_per_step"] / step
                yield {"check": "wall clock", "temperature": temperature, "shape": f"{name}_{length}",
                       "tokens/step": round(row["tokens_per_step"], 3), "c": round(draft[name, length], 3),
                       "v": round(verify(length + 1), 3), "speed-up": round(expected, 3),
                       "measured speed-up": round(row["speedup"], 3),
                       "share": round(row["speedup"] / expected, 3), "prompt": round(prompt, 3),
                       "share with prompt": round(row["speedup"] * (step + prompt) / row["tokens_per_step"], 3)}


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        rows = [row for t in (0, 1)
                for check in (bench.out_of_sample, bench.in_sample, bench.wall_clock) for row in check(t)]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
