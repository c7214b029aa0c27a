#!/usr/bin/env python3
"""The table of JSON Schema's keywords in docs/grammar.md: specdec beside llguidance and xgrammar.

    VENV/bin/pip install jsonschema                       # beside what bench/peers/grammar.py needs
    VENV/bin/python bench/peers/grammar_keywords.py           prints the table
    VENV/bin/python bench/peers/grammar_keywords.py --write   writes it into docs/grammar.md

Probes: lines {group, id, schema, valid, invalid} of tests/data/grammar/keyword_probes.jsonl.gz. Instances stand as
values, or as texts (`valid_text`, `invalid_text`) where the spelling is what matters; a line without instances is a
schema that is wrong. `specdec` and `error` say what specdec does instead of being right, and what its error names;
`registry` holds documents that the schema means. Every outcome is checked with python-jsonschema first, but for lines
that say why not (`unverified`) and what makes a text of a format invalid. Fails when specdec does anything else than
the probes say; tests/grammar/json/keyword_probes_test.cpp asks the same without peers.
"""
import argparse
import datetime
import gzip
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from decimal import Context, Decimal, setcontext
from pathlib import Path

import grammar

ROOT = grammar.ROOT
PAGE = ROOT / "docs/grammar.md"
PROBES = ROOT / "tests/data/grammar/keyword_probes.jsonl.gz"
MARKS = ["<!-- bench/peers/grammar_keywords.py writes from here -->", "<!-- to here -->"]
RIGHT, ERROR, NARROW, IGNORED, BOTH = OUTCOMES = ["right", "error", "too narrow", "ignored", "both"]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="llguidance,xgrammar", help="'' for none")
    parser.add_argument("--tokenizer", default="models/target/tokenizer.model")
    parser.add_argument("--specdec", default="build/specdec")
    parser.add_argument("--seconds", type=int, default=45, help="xgrammar: CPU time limit a probe")
    parser.add_argument("--write", action="store_true", help="into docs/grammar.md instead of printing it")
    parser.add_argument("--verbose", action="store_true", help="what each engine did that was not right")
    return parser.parse_args()


def read_probes():
    """Each with its instances as `tests`: {valid, data} or {valid, text}."""
    probes = [json.loads(line) for line in gzip.decompress(PROBES.read_bytes()).decode().splitlines()]
    for probe in probes:
        probe["tests"] = [{"valid": valid, key: instance} for valid, name in [(True, "valid"), (False, "invalid")]
                          for key, ending in [("data", ""), ("text", "_text")]
                          for instance in probe.get(name + ending, [])]
    return probes


# ---- python-jsonschema --------------------------------------------------------------------------


class NoJson(Exception):
    """A text that is none, or names a member twice."""


def unique_names(members):
    if len({name for name, _ in members}) < len(members):
        raise NoJson
    return dict(members)


def no_constant(name):
    raise NoJson(name)


def parse_exactly(text):
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=no_constant, object_pairs_hook=unique_names)
    except json.JSONDecodeError as error:
        raise NoJson(text) from error


def is_integer(_, value):
    whole = isinstance(value, int) or isinstance(value, Decimal) and value == value.to_integral_value()
    return whole and not isinstance(value, bool)


def exact_validator(probe):
    """Validates with decimal numbers; checks the formats that this installation knows."""
    import jsonschema
    import referencing
    kind = jsonschema.validators.validator_for(probe["schema"], default=jsonschema.Draft202012Validator)
    schema = parse_exactly(json.dumps(probe["schema"]))
    if not probe.get("unverified"):
        kind.check_schema(probe["schema"])
    registry = referencing.Registry().with_contents(
        [(document["uri"], document["schema"]) for document in probe.get("registry", [])],
        default_specification=referencing.jsonschema.DRAFT202012)
    exact = jsonschema.validators.extend(kind, type_checker=kind.TYPE_CHECKER.redefine("integer", is_integer))
    return exact(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)


def reference_outcome(validator, test):
    try:
        return validator.is_valid(parse_exactly(grammar.instance_text(test)))
    except NoJson:
        return False


def check_probe(probe):
    """What is wrong with a probe: texts."""
    tests = probe["tests"] or [{"valid": True, "data": [{"a": 1}]}]
    try:
        validator = exact_validator(probe)
        outcomes = [reference_outcome(validator, test) for test in tests]
    except Exception as error:  # any: references, circles and the schema's own mistakes throw different ones
        return [f"python-jsonschema: {error}"[:200]] if probe["tests"] else []
    if not probe["tests"]:
        return ["python-jsonschema finds nothing wrong with the schema"]
    free = "format" in probe["schema"]
    return [f"python-jsonschema has {grammar.instance_text(test)} as {'valid' if outcome else 'invalid'}"
            for test, outcome in zip(tests, outcomes)
            if outcome != test["valid"] and not (free and outcome)]


# ---- the engines --------------------------------------------------------------------------------


def explain_accepts(options, folder, schema, text):
    """Whether `specdec grammar explain` gets through a text, for texts that are not as `grammar test` writes them."""
    file = Path(folder) / "schema.json"
    file.write_text(json.dumps(schema), encoding="utf-8")
    command = [options.specdec, "grammar", "explain", str(file), "--tokenizer", options.tokenizer, "--order", "any",
               "--escapes", "any", "--text", text]
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    lines = out.splitlines()
    return "may end here  yes" in lines and not any(line.startswith("not allowed ") for line in lines)


def run_specdec(probes, options):
    with tempfile.TemporaryDirectory() as folder:
        cases, registry, out = (Path(folder) / name for name in ["cases.jsonl", "registry.jsonl", "out.jsonl"])
        cases.write_text("".join(json.dumps({
            "id": probe["id"], "schema": probe["schema"],
            "tests": [test for test in probe["tests"] if "data" in test]}) + "\n" for probe in probes),
            encoding="utf-8")
        registry.write_text("".join(json.dumps(document) + "\n" for probe in probes
                                    for document in probe.get("registry", [])), encoding="utf-8")
        subprocess.run([options.specdec, "--quiet", "grammar", "test", str(cases), "--tokenizer", options.tokenizer,
                        "--registry", str(registry), "--order", "any", "--escapes", "any", "--json", str(out)],
                       check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        results = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        for probe, result in zip(probes, results):
            walked = iter(result["tests"])
            result["tests"] = [next(walked) if "data" in test else {"valid": test["valid"], "accepted": explain_accepts(
                options, folder, probe["schema"], test["text"])} for test in probe["tests"] if result["compiled"]]
    return results


def outcome_of(probe, result):
    if not result["compiled"]:
        return ERROR if probe["tests"] else RIGHT
    narrow = any(test["valid"] and not test["accepted"] for test in result["tests"])
    ignored = any(test["accepted"] and not test["valid"] for test in result["tests"]) or not probe["tests"]
    return BOTH if narrow and ignored else NARROW if narrow else IGNORED if ignored else RIGHT


def unexpected(probe, result):
    """What specdec did that the probe does not say."""
    outcome, error = outcome_of(probe, result), result["error"] or ""
    if outcome != probe.get("specdec", RIGHT):
        return f"{probe['id']}: specdec: {outcome}: {error}"
    return "" if probe.get("error", "") in error else f"{probe['id']}: specdec's error is another: {error}"


# ---- the page -----------------------------------------------------------------------------------


def describe(probe, result):
    wrong = [grammar.instance_text(probe["tests"][i]) for i, test in enumerate(result.get("tests", []))
             if test["valid"] != test["accepted"]]
    return result.get("error") or "wrong of " + "  ".join(wrong)


def table(probes, columns):
    row = lambda cells: "| " + " | ".join(cells) + " |"
    outcomes = [[outcome_of(*pair) for pair in zip(probes, results)] for results in columns.values()]
    lines = [row(["", *columns]), "|---" * (1 + len(columns)) + "|"]
    for outcome in OUTCOMES:
        lines.append(row([f"**{outcome}**, of {len(probes)}", *(str(column.count(outcome)) for column in outcomes)]))
    for group in dict.fromkeys(probe["group"] for probe in probes):
        lines.append(row([f"**{group}**", *([""] * len(columns))]))
        rows = [(probe["id"], [column[i] for column in outcomes]) for i, probe in enumerate(probes)
                if probe["group"] == group]
        agreed = [name for name, cells in rows if set(cells) == {RIGHT}]
        if agreed:  # one row: what no engine does wrong
            lines.append(row(["; ".join(agreed), *([RIGHT] * len(columns))]))
        lines += [row([name, *cells]) for name, cells in rows if set(cells) != {RIGHT}]
    return "\n".join(lines)


def write_page(text):
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    page, found = re.subn(pattern, lambda _: f"{MARKS[0]}\n\n{text}\n\n{MARKS[1]}", page, flags=re.DOTALL)
    if found != 1:
        sys.exit(f"{PAGE}: the lines '{MARKS[0]}' and '{MARKS[1]}' must stand there once")
    PAGE.write_text(page, encoding="utf-8")


def run_all(probes, options):
    command = [options.specdec, "--version"]
    version = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    columns = {version: run_specdec(probes, options)}
    vocabulary = grammar.Vocabulary(str(ROOT / options.tokenizer))
    for name in filter(None, options.peers.split(",")):
        columns[f"{name} {importlib.metadata.version(name)}"] = grammar.run_peer(
            name, vocabulary, probes, options.seconds)
    return columns


def main():
    setcontext(Context(prec=100))
    options = parse_options()
    probes = read_probes()
    wrong = [f"{probe['id']}: {mistake}" for probe in probes if not probe.get("unverified")
             for mistake in check_probe(probe)]
    if wrong:
        sys.exit("probes that are wrong:\n" + "\n".join(wrong))
    columns = run_all(probes, options)
    if options.verbose:
        for name, results in columns.items():
            for probe, result in zip(probes, results):
                outcome = outcome_of(probe, result)
                if outcome != RIGHT:
                    print(f"{name}: {probe['id']}: {outcome}: {describe(probe, result)}", file=sys.stderr)
    head = f"{datetime.date.today().isoformat()}, `bench/peers/grammar_keywords.py --write`:"
    text = f"{head}\n\n{table(probes, columns)}"
    if options.write:
        write_page(text)
    else:
        print(text)
    surprises = list(filter(None, map(unexpected, probes, next(iter(columns.values())))))
    print("".join(line + "\n" for line in surprises), end="", file=sys.stderr)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
