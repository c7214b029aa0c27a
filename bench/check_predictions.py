#!/usr/bin/env python3
"""How well `specdec simulate` predicts: recorded once, compared with what is then measured.

    bench/check_predictions.py [--tokens 128] [--json]

Out of sample: chains of 8 are recorded on the first half of configs/prompts/bench.jsonl; chains of 1, 2 and 4
and a small tree are predicted, and measured on the other half. In sample: all lengths from 1 to 8 are predicted
from the traces of one run on all prompts, and have to lie in the 95 % intervals of what each length does there. Wall
clock: the measured speed-up beside tau / (g c + v(g)), with c and v measured apart by `specdec profile`; "prompt"
is what the drafter takes to read the prompt, in plain forwards a step, which that formula leaves out. At
temperature 0 and 1, the shipped models, one thread.

Steps are counted over all prompts. What a step takes, in plain forwards, is compared in turns (out of sample: rounds
over all prompts; wall clock: a profile before every few), since a shared machine's speed drifts within minutes: times
are medians over the turns. They need a machine on which nothing else is started.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HALF = 48
ROUNDS = 3
TURN = 6  # prompts
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


class Steps:
    """Of each shape: tokens and steps over all turns, and what a step took in each, in plain forwards."""

    def __init__(self):
        self.counts = {}
        self.costs = {}

    def add(self, name, row, counts):
        tokens, steps = self.counts.get(name, (0, 0))
        self.counts[name] = tokens + counts["committed"], steps + counts["steps"]
        speedup = row.get("speedup_of_totals", row["speedup"])  # simulate's are of totals
        self.costs.setdefault(name, []).append(row["tokens_per_step"] / speedup)

    def names(self):
        return list(self.counts)

    def tokens(self, name):
        tokens, steps = self.counts[name]
        return tokens / steps

    def speedup(self, name):
        return self.tokens(name) / statistics.median(self.costs[name])


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = Path(folder)

    def run(self, name, temperature, strategies, skip=0, limit=0, trace=""):
        """Runs an experiment; returns its folder and the summary's rows of all categories together."""
        out = self.folder / f"{name}_{temperature}_{skip}"
        config = out.with_suffix(".yaml")
        config.write_text("\n".join([
            f"name: {name}", "seed: 1", "threads: 1", "warm_up: 3",
            "model: {weights: models/target, device: cpu, include_mtp: true}",
            f"prompts: {{file: {ROOT}/configs/prompts/bench.jsonl, max_prompt_tokens: 1024, skip: {skip}, "
            f"limit: {limit}}}",
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
        strategies = [chain(f"chain_{n}", n) for n in LENGTHS] + [
            f"{{name: tree, type: speculative, tree: {{type: static, paths: {TREE}}}, drafter: {BEST}}}"]
        predicted, measured = Steps(), Steps()
        for turn in range(ROUNDS):
            recorded, _ = self.run(f"record_{turn}", temperature, [chain("draws", 8), chain("best", 8, BEST)],
                                   limit=HALF, trace="trace: {depth: 8, width: 3}")
            for shape in self.simulate(recorded, "draws", "--lengths", ",".join(map(str, LENGTHS))):
                predicted.add(f"chain_{shape['depth']}", shape, shape)
            shapes = self.simulate(recorded, "best", "--lengths", "1", "--tree", json.dumps(TREE))
            tree = next(shape for shape in shapes if shape["tree"])
            predicted.add("tree", tree, tree)
            _, rows = self.run(f"measure_{turn}", temperature, strategies, skip=HALF)
            for name in predicted.names():
                measured.add(name, rows[name], rows[name]["counts"])
        for name in predicted.names():
            yield {"check": "other half", "temperature": temperature, "shape": name,
                   "tokens/step": round(predicted.tokens(name), 3),
                   "measured tokens/step": round(measured.tokens(name), 3),
                   "off by %": round(100 * (predicted.tokens(name) / measured.tokens(name) - 1), 1),
                   "speed-up": round(predicted.speedup(name), 3),
                   "measured speed-up": round(measured.speedup(name), 3),
                   "speed-up off by %": round(100 * (predicted.speedup(name) / measured.speedup(name) - 1), 1)}

    def in_sample(self, temperature):
        run, _ = self.run("record_all", temperature, [chain("draws", 8)], trace="trace: {depth: 8, width: 1}")
        _, measured = self.run("all", temperature, [chain(f"chain_{n}", n) for n in range(1, 9)])
        for shape in self.simulate(run, "draws", "--lengths", ",".join(map(str, range(1, 9)))):
            low, high = measured[f"chain_{shape['depth']}"]["tokens_per_step_interval_95"]
            yield {"check": "95 % interval", "temperature": temperature, "shape": f"chain_{shape['depth']}",
                   "tokens/step": round(shape["tokens_per_step"], 3), "low": round(low, 3),
                   "high": round(high, 3), "inside": low <= shape["tokens_per_step"] <= high}

    def profile(self, temperature):
        """In plain forwards: c and v by drafter and length, and what reading a token of the prompt takes. v is that of
        the profile's generations: a forward right after a draft takes longer than in a row of its kind."""
        out = self.folder / "profile.json"
        drafters = [part for drafter in HEADS.values() for part in ("--draft", drafter)]
        subprocess.run([self.options.specdec, "--threads", "1", "profile", "models/target", *drafters, "--lengths",
                        ",".join(map(str, LENGTHS)), "--contexts", "128", "--repeats", "60", "--temperature",
                        str(temperature), "--json", str(out)],
                       cwd=ROOT, check=True, capture_output=True)
        profile = json.loads(out.read_text(encoding="utf-8"))
        plain = profile["plain"]["verify_seconds"][1]
        draft, verify = {}, {}
        for drafter in profile["drafters"]:
            for cost in drafter["lengths"]:
                shape = drafter["name"], cost["drafted"]
                draft[shape] = cost["draft_seconds"][1] / cost["drafted"] / plain
                verify[shape] = cost["verify_seconds"][1] / plain
        reading = {drafter["name"]: drafter["prompt_token_seconds"] / plain for drafter in profile["drafters"]}
        return draft, verify, reading

    def wall_clock(self, temperature):
        shapes = {(name, n): f"{name}_{n}" for name in HEADS for n in LENGTHS}
        strategies = [chain(shape, n, HEADS[name]) for (name, n), shape in shapes.items()]
        measured, turns = Steps(), []
        for skip in range(0, HALF, TURN):
            draft, verify, reading = self.profile(temperature)
            run, rows = self.run("clock", temperature, strategies, skip, TURN)
            lines = (run / "generations.jsonl").read_text(encoding="utf-8").splitlines()
            for shape in shapes.values():
                measured.add(shape, rows[shape], rows[shape]["counts"])
            turns.append((draft, verify, reading, [json.loads(line) for line in lines]))
        for (name, length), shape in shapes.items():
            costs = []  # a turn's c, v, and the prompt's part
            for draft, verify, reading, generations in turns:
                own = [one for one in generations if one["strategy"] == shape]
                prompt = sum(one["prompt_tokens"] for one in own) / sum(one["steps"] for one in own)
                costs.append((draft[name, length], verify[name, length], reading[name] * prompt))
            c, v, prompt = (statistics.median(cost[i] for cost in costs) for i in range(3))
            plain = [length * c + v for c, v, _ in costs]
            shares = [a / b for a, b in zip(plain, measured.costs[shape])]
            with_prompt = [(a + cost[2]) / b for a, cost, b in zip(plain, costs, measured.costs[shape])]
            yield {"check": "wall clock", "temperature": temperature, "shape": shape,
                   "tokens/step": round(measured.tokens(shape), 3), "c": round(c, 3), "v": round(v, 3),
                   "speed-up": round(measured.tokens(shape) / statistics.median(plain), 3),
                   "measured speed-up": round(measured.speedup(shape), 3),
                   "share": round(statistics.median(shares), 3), "prompt": round(prompt, 3),
                   "share with prompt": round(statistics.median(with_prompt), 3)}


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
