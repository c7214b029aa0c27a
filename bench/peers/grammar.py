#!/usr/bin/env python3
"""Grammar masks beside llguidance and xgrammar, on the same schemas and instances, in the same run.

    python3 -m venv VENV && VENV/bin/pip install llguidance==1.9.1 sentencepiece numpy   # once
    VENV/bin/pip install xgrammar==0.2.8      # for --peers llguidance,xgrammar; brings torch and transformers
    VENV/bin/pip install ./grammar/python     # for --peers specdec_grammar: specdec through Python, as the peers
    VENV/bin/python bench/peers/grammar.py CASES.jsonl --tokenizer tokenizer.model [--limit N] [--json]

CASES: lines {id, schema, tests: [{valid, data}]}. Every engine walks each instance, written compactly, token
by token, with a mask at each step; end-of-sequence tells at the end whether it is complete. Times of the peers
are CPU times of the calling thread through Python, the call and the writing of all bits included; what an empty
call measures is printed, and not subtracted. specdec's are wall times of its own process, read from `specdec
grammar test --json`, without the bits. Schemas come in shuffled order (--seed). xgrammar runs each
schema in a process of its own, with a limit of CPU time; strict_mode=False leaves objects open unless the schema
closes them, as JSON Schema has it, and white space is its default (any), since without it arrays that the
schema leaves open must have ", " between their items.
"""
import argparse
import importlib.metadata
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOO_SLOW = "took more than"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases")
    parser.add_argument("--tokenizer", required=True, help="a SentencePiece tokenizer.model")
    parser.add_argument("--peers", default="llguidance",
                        help="llguidance, xgrammar, specdec_grammar, with commas, or '' for specdec alone")
    parser.add_argument("--limit", type=int, help="schemas, after shuffling")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=45, help="xgrammar: CPU time limit a schema")
    parser.add_argument("--specdec", default=str(ROOT / "build/specdec"))
    parser.add_argument("--json", action="store_true", help="print rows instead of a text")
    return parser.parse_args()


class Vocabulary:
    """The pieces of a SentencePiece model as bytes."""

    def __init__(self, path):
        import sentencepiece
        self.path = path
        self.model = sentencepiece.SentencePieceProcessor(model_file=path)
        self.eos_token_id = self.model.eos_id()
        self.bos_token_id = None
        self.tokens, self.special_token_ids = [], []
        for i in range(self.model.vocab_size()):
            if self.model.is_control(i) or self.model.is_unknown(i):
                self.tokens.append(self.model.id_to_piece(i).encode())
                self.special_token_ids.append(i)
            elif self.model.is_byte(i):
                self.tokens.append(bytes([int(self.model.id_to_piece(i)[3:5], 16)]))
            else:
                self.tokens.append(self.model.id_to_piece(i).replace("\u2581", " ").encode())

    def __call__(self, text):
        return self.model.encode(text if isinstance(text, str) else text.decode(errors="replace"))


def instance_text(test):
    """The instance as it is walked: its own `text`, or its `data` written compactly."""
    return test.get("text") or json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))


def cpu_us(call):
    start = time.thread_time_ns()
    result = call()
    return result, (time.thread_time_ns() - start) / 1000.0


class Llguidance:
    def __init__(self, vocabulary):
        import llguidance
        self.matcher, self.vocabulary = llguidance.LLMatcher, vocabulary
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))

    def run(self, case):
        options = {"whitespace_flexible": False}
        schema = case["schema"]

        def compile_it():
            grammar = self.matcher.grammar_from_json_schema(json.dumps(schema), defaults=options)
            matcher = self.matcher(self.tokenizer, grammar)
            if matcher.is_error():
                raise ValueError(matcher.get_error())
            return matcher, matcher.compute_bitmask()

        (first, _), first_us = cpu_us(compile_it)
        tests, masks = [], []
        for test in case["tests"]:
            matcher = first.deep_copy()
            tests.append({"valid": test["valid"], "accepted": self.walk(matcher, instance_text(test), masks)})
        return {"compiled": True, "first_mask_us": first_us, "tests": tests, "mask_us": masks}

    def walk(self, matcher, text, masks):
        for token in self.vocabulary(text):
            mask, spent = cpu_us(matcher.compute_bitmask)
            masks.append(spent)
            if not mask[token // 8] >> (token % 8) & 1 or not matcher.consume_token(token):
                return False
        return matcher.is_accepting()


def takes_all(matcher, tokens, mask, masks):
    """Walks a matcher with xgrammar's verbs; `masks` gets the time of the mask before each token."""
    for token in tokens:
        _, spent = cpu_us(lambda: matcher.fill_next_token_bitmask(mask))
        masks.append(spent)
        if not matcher.accept_token(token):
            return False
    return True


class Xgrammar:
    def __init__(self, vocabulary):
        import xgrammar
        self.xgrammar, self.vocabulary = xgrammar, vocabulary
        info = xgrammar.TokenizerInfo(vocabulary.tokens, vocab_type=xgrammar.VocabType.RAW,
                                      stop_token_ids=[vocabulary.eos_token_id])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, len(vocabulary.tokens))

    def run(self, case):
        def compile_it():
            grammar = self.compiler.compile_json_schema(json.dumps(case["schema"]), strict_mode=False)
            self.xgrammar.GrammarMatcher(grammar).fill_next_token_bitmask(self.mask)
            return grammar

        start = time.process_time_ns()
        grammar = compile_it()
        first_us = (time.process_time_ns() - start) / 1000.0
        tests, masks = [], []
        for test in case["tests"]:
            matcher = self.xgrammar.GrammarMatcher(grammar)
            tests.append({"valid": test["valid"], "accepted": self.walk(matcher, instance_text(test), masks)})
        return {"compiled": True, "first_mask_us": first_us, "tests": tests, "mask_us": masks}

    def walk(self, matcher, text, masks):
        return (takes_all(matcher, self.vocabulary(text), self.mask, masks)
                and matcher.accept_token(self.vocabulary.eos_token_id))


class SpecdecGrammar:
    """specdec's Python package, one thread, nothing kept on disk."""

    def __init__(self, vocabulary):
        import specdec_grammar
        self.package, self.vocabulary = specdec_grammar, vocabulary
        tokenizer = specdec_grammar.Tokenizer(vocabulary.path, stop_token_ids=[vocabulary.eos_token_id])
        self.compiler = specdec_grammar.GrammarCompiler(tokenizer, max_threads=1)
        self.mask = specdec_grammar.allocate_token_bitmask(1, self.compiler.vocab_size)

    def run(self, case):
        def compile_it():
            grammar = self.compiler.compile_json_schema(case["schema"], order="any", escapes="any")
            matcher = self.package.GrammarMatcher(grammar)
            matcher.fill_next_token_bitmask(self.mask)
            return matcher

        first, first_us = cpu_us(compile_it)
        tests, masks = [], []
        for test in case["tests"]:
            accepted = self.walk(first.copy(), instance_text(test), masks)
            tests.append({"valid": test["valid"], "accepted": accepted})
        return {"compiled": True, "first_mask_us": first_us, "tests": tests, "mask_us": masks}

    def walk(self, matcher, text, masks):
        return takes_all(matcher, self.vocabulary(text), self.mask, masks) and matcher.is_completed()


ENGINES = {"llguidance": Llguidance, "xgrammar": Xgrammar, "specdec_grammar": SpecdecGrammar}


def answer(engine, case):
    try:
        return engine.run(case)
    except Exception as error:  # whatever a peer throws is its answer
        return {"compiled": False, "error": str(error)[:200]}


def in_own_process(engine, case, seconds):
    """Runs a case in a fork that may use so many seconds of a processor, whatever else the machine does."""
    receive, send = multiprocessing.get_context("fork").Pipe(False)

    def work():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        send.send(answer(engine, case))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    send.close()  # the child's end is then the only one: its death is the end of the file
    try:
        result = receive.recv()
    except EOFError:
        process.join()
        slow = process.exitcode == -signal.SIGXCPU
        return {"compiled": False, "error": f"{TOO_SLOW} {seconds} s" if slow else "the process died"}
    process.join()
    return result


def run_peer(name, vocabulary, cases, seconds):
    engine = ENGINES[name](vocabulary)
    results = []
    for i, case in enumerate(cases):
        print(f"\r{name}: {i + 1} of {len(cases)} schemas", end="", file=sys.stderr)
        results.append(in_own_process(engine, case, seconds) if name == "xgrammar" else answer(engine, case))
    print(file=sys.stderr)
    return results


def run_specdec(cases, options, kept):
    """`kept`: the folder for what belongs to a tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "cases.jsonl", Path(folder) / "out.jsonl"
        file.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
        command = [options.specdec, "--quiet", "grammar", "test", str(file), "--tokenizer", options.tokenizer,
                   "--escapes", "any", "--json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SPECDEC_CACHE": kept})
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def quantile(values, share):
    ordered = sorted(values)
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2) if ordered else None


def summary(cases, results):
    tested = [(c, r) for c, r in zip(cases, results) if c["tests"]]
    right = sum(r["compiled"] and all(t["valid"] == t["accepted"] for t in r["tests"]) for _, r in tested)
    checked = [t for r in results if r["compiled"] for t in r["tests"]]
    masks = [us for r in results if r["compiled"] for us in r["mask_us"]]
    first = [r["first_mask_us"] / 1000.0 for r in results if r["compiled"]]
    return {"schemas": len(results), "instances": sum(len(c["tests"]) for c in cases),
            "compiled %": round(100.0 * sum(r["compiled"] for r in results) / len(results), 1),
            "over the time limit": sum((r.get("error") or "").startswith(TOO_SLOW) for r in results),
            "right %": round(100.0 * right / len(tested), 1),
            "invalid accepted": sum(t["accepted"] and not t["valid"] for t in checked),
            "valid refused": sum(t["valid"] and not t["accepted"] for t in checked),
            "first mask ms p50": quantile(first, 0.5), "first mask p90": quantile(first, 0.9),
            "first mask p99": quantile(first, 0.99), "first mask max": quantile(first, 1.0),
            "mask us p50": quantile(masks, 0.5), "mask p90": quantile(masks, 0.9),
            "mask p99": quantile(masks, 0.99), "mask p99.9": quantile(masks, 0.999),
            "mask max": quantile(masks, 1.0), "masks": len(masks)}


def main():
    options = parse_options()
    cases = [json.loads(line) for line in Path(options.cases).read_text(encoding="utf-8").splitlines()]
    for case in cases:
        case.setdefault("tests", [])
    random.Random(options.seed).shuffle(cases)
    cases = cases[:options.limit]
    columns = {}
    with tempfile.TemporaryDirectory() as kept:
        for name in ["specdec, first", "specdec"]:
            columns[name] = summary(cases, run_specdec(cases, options, kept))
    vocabulary = Vocabulary(options.tokenizer) if options.peers else None
    empty = quantile([cpu_us(lambda: None)[1] for _ in range(10_000)], 0.5)
    print(f"an empty call measures {empty} us", file=sys.stderr)
    for name in filter(None, options.peers.split(",")):
        results = run_peer(name, vocabulary, cases, options.seconds)
        columns[f"{name} {importlib.metadata.version(name)}"] = summary(cases, results)
    rows = [{"": key, **{name: column[key] for name, column in columns.items()}} for key in columns["specdec"]]
    if options.json:
        print(json.dumps(rows))
        return
    print(" " * 20 + "".join(f"{name:>20}" for name in columns))
    for row in rows:
        print(f"{row['']:20}" + "".join(f"{str(row[name]):>20}" for name in columns))


if __name__ == "__main__":
    main()
