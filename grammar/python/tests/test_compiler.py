import json
import os
import threading
import time

import pytest
from support import END, MODEL

import specdec_grammar as sg


def accepts(grammar, text):
    matcher = sg.GrammarMatcher(grammar)
    return matcher.accept_string(text) and matcher.is_completed()


def test_every_notation(letters):
    cases = {
        "json_schema": (letters.compile_json_schema({"enum": ["a"]}), ['"a"'], ['"b"']),
        "boolean": (letters.compile_json_schema(True), ["1", "[{}]"], ["x"]),
        "regex": (letters.compile_regex("[ab]{2}"), ["ab"], ["a", "abc"]),
        "gbnf": (letters.compile_grammar('root ::= "a" root "b" | ""'), ["", "aabb"], ["aab"]),
        "gbnf rule": (letters.compile_grammar('x ::= "a"', root_rule_name="x"), ["a"], ["b"]),
        "lark": (letters.compile_lark('start: "a" B+\nB: /b|c/'), ["abc"], ["a"]),
        "choice": (letters.compile_choice(["yes", "no"]), ["yes", "no"], ["maybe"]),
        "json": (letters.compile_builtin_json_grammar(), ['{"a":[1,null]}'], ["{a}"]),
        "tags": (
            letters.compile_structural_tag(
                [
                    {"begin": "<call>", "schema": {"type": "integer"}, "end": "</call>"},
                    sg.Tag("<w>", sg.GrammarSource("regex", "[ab]+"), "</w>"),
                ]
            ),
            ["free text <call>12</call> more <w>ab</w>", "", "a < b"],
            ["<call>x</call>", "<call>12", "<w>c</w>"],
        ),
        "structure": (
            letters.compile(
                sg.GrammarSource(
                    "tags",
                    '{"type": "tags_with_separator", "separator": ",", "at_least_one": true, "tags":'
                    ' [{"begin": "(", "content": {"type": "regex", "pattern": "a+"}, "end": ")"}]}',
                )
            ),
            ["(a)", "(a),(aa)"],
            ["", "(a),", "a"],
        ),
        "tool_calls": (
            letters.compile(
                sg.GrammarSource(
                    "tool_calls",
                    '{"style": "llama3", "tools": [{"function": {"name": "f"}}]}',
                )
            ),
            ["text", '{"name": "f", "parameters": {}}'],
            ['{"name": "g", "parameters": {}}'],
        ),
    }
    kinds = {"json_schema", "regex", "gbnf", "lark", "choice", "trigger", "tags", "tool_calls"}
    assert set(sg.grammar_kinds()) >= kinds
    for name, (grammar, right, wrong) in cases.items():
        for text in right:
            assert accepts(grammar, text), (name, text)
        for text in wrong:
            assert not accepts(grammar, text), (name, text)


def test_options_of_schemas(letters):
    schema = {"properties": {"a": True, "b": True}, "required": ["a", "b"], "type": "object"}
    both = '{"b":1,"a":2}'
    assert not accepts(letters.compile_json_schema(schema), both)
    assert accepts(letters.compile_json_schema(schema, order="any"), both)
    spaced = letters.compile_json_schema(schema, order="any", whitespace="any")
    assert accepts(spaced, '{ "b" : 1, "a" : 2 }') and accepts(spaced, both)
    date = {"type": "string", "format": "date"}
    assert not accepts(letters.compile_json_schema(date), '"x"')
    assert accepts(letters.compile_json_schema(date, format="annotate"), '"x"')
    for document in ('{"const": 1}', {"const": 1}):
        registry = {"http://a/b": document, "http://a/any": True}
        remote = letters.compile_json_schema({"$ref": "http://a/b"}, registry=registry)
        assert accepts(remote, "1") and not accepts(remote, "2")
        assert accepts(letters.compile_json_schema({"$ref": "http://a/any"}, registry=registry), "2")
    escaped = '"\\u0061"'
    assert not accepts(letters.compile_json_schema({"type": "string"}), escaped)
    assert accepts(letters.compile_json_schema({"type": "string"}, escapes="any"), escaped)
    array = {"type": "array", "items": {"type": "integer"}}
    wide = "[" + 17 * " " + "1]"
    assert not accepts(letters.compile_json_schema(array, whitespace="any"), wide)
    longer = letters.compile_json_schema(array, whitespace="any", max_whitespace=17)
    assert accepts(longer, wide)
    with pytest.raises(sg.GrammarError, match="max_whitespace is 10001"):
        letters.compile_json_schema(array, whitespace="any", max_whitespace=10_001)
    with pytest.raises(sg.GrammarError, match="max_whitespace is 5, but whitespace is compact"):
        letters.compile_json_schema(array, max_whitespace=5)


def test_bounds_of_white_space_that_bound_nothing(letters):
    schema = {"type": "array", "items": {"type": "integer"}}
    tag = {"begin": "<a>", "schema": schema, "end": "</a>"}
    content = {"type": "json_schema", "json_schema": schema}
    calls = {"style": "llama3", "tools": [{"type": "function", "function": {"name": "f"}}]}
    wide = "[" + 17 * " " + "1]"

    def compiled(kind, request, **options):
        return letters.compile(sg.GrammarSource(kind, json.dumps(request), **options))

    with pytest.raises(sg.GrammarError, match="max_whitespace is 17, but whitespace is compact"):
        letters.compile_structural_tag([tag], max_whitespace=17)
    bounded = letters.compile_structural_tag([tag], whitespace="any", max_whitespace=17)
    assert accepts(bounded, f"<a>{wide}</a>")
    unused = "max_whitespace is 17, but no schema in it has the whitespace 'any'"
    own = sg.Tag("<a>", sg.GrammarSource("json_schema", json.dumps(schema), whitespace="any"), "</a>")
    with pytest.raises(sg.GrammarError, match=unused):
        letters.compile_structural_tag([own], max_whitespace=17)
    with pytest.raises(sg.GrammarError, match=unused):
        letters.compile_regex("a", max_whitespace=17)
    with pytest.raises(sg.GrammarError, match=unused):
        compiled("tags", content, max_whitespace=17)
    assert accepts(compiled("tags", {**content, "whitespace": "any"}, max_whitespace=17), wide)
    assert not accepts(compiled("tags", {**content, "whitespace": "any"}), wide)
    with pytest.raises(sg.GrammarError, match=unused):
        compiled("tool_calls", calls, max_whitespace=17)
    compiled("tool_calls", {**calls, "whitespace": "any"}, max_whitespace=17)


def test_classes_with_a_schema(letters):
    class Model:
        @staticmethod
        def model_json_schema():
            return {"const": "x"}

    assert accepts(letters.compile_json_schema(Model), '"x"')
    tag = letters.compile_structural_tag([{"begin": "<a>", "schema": Model}])
    assert accepts(tag, '<a>"x"') and not accepts(tag, "<a>1")


def test_options_of_schemas_in_tags(letters):
    def tag_of(schema, **options):
        tags = [{"begin": "<a>", "schema": schema, "end": "</a>"}]
        return letters.compile_structural_tag(tags, **options)

    schema = {"properties": {"a": True, "b": True}, "required": ["a", "b"], "type": "object"}
    swapped, spaced = '<a>{"b":1,"a":2}</a>', '<a>{ "a" : 1, "b" : 2 }</a>'
    assert not accepts(tag_of(schema), swapped) and not accepts(tag_of(schema), spaced)
    assert accepts(tag_of(schema, order="any"), swapped)
    assert accepts(tag_of(schema, whitespace="any"), spaced)
    date = {"type": "string", "format": "date"}
    assert not accepts(tag_of(date), '<a>"x"</a>')
    assert accepts(tag_of(date, format="annotate"), '<a>"x"</a>')
    escaped = '<a>"\\u0061"</a>'
    assert not accepts(tag_of({"type": "string"}), escaped)
    assert accepts(tag_of({"type": "string"}, escapes="any"), escaped)
    remote = tag_of({"$ref": "http://a/b"}, registry={"http://a/b": {"const": 1}})
    assert accepts(remote, "<a>1</a>") and not accepts(remote, "<a>2</a>")
    with pytest.raises(sg.GrammarError, match="max_alternatives"):
        tag_of({"anyOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, limits={"max_alternatives": 1})
    own = sg.Tag("<a>", sg.GrammarSource("json_schema", "true"), "</a>")
    assert not accepts(letters.compile_structural_tag([own], whitespace="any"), "<a>[ 1 ]</a>")


def test_canonical_grammars(compiler):
    any_cut = sg.GrammarMatcher(compiler.compile_choice(["hello there"]))
    canonical = sg.GrammarMatcher(compiler.compile_choice(["hello there"], canonical=True))
    assert set(canonical.allowed_tokens()) < set(any_cut.allowed_tokens())
    for token in compiler.tokenizer.encode("hello there"):
        assert canonical.accept_token(token)
    assert canonical.is_completed()


def test_equal_grammars_are_compiled_once(letters):
    letters.clear_cache()
    assert letters.get_cache_size_bytes() == 0
    first = letters.compile_regex("abc")
    assert letters.compile_regex("abc") == first
    assert hash(letters.compile_regex("abc")) == hash(first)
    assert letters.compile_regex("abcd") != first
    assert letters.get_cache_size_bytes() > 0
    assert first.stop_token_ids == [END]
    small = sg.GrammarCompiler(letters.tokenizer, cache_limit_bytes=200_000)
    first = small.compile_regex("a")
    for i in range(20):
        small.compile_regex(f"b{{{i}}}")
        assert small.get_cache_size_bytes() <= 200_000
    assert small.compile_regex("a") != first, "it was dropped"


SLOW = {"type": "string", "allOf": [{"pattern": "^([ab][ab])*a(a|b){19}$"}, {"not": {"pattern": "^[ab]*a(a|b){19}$"}}]}
HUGE = {"max_regex_states": 1_000_000_000}


def test_timeout(letters):
    begin = time.monotonic()
    with pytest.raises(sg.GrammarInterrupted, match="took longer than 0.05 s") as caught:
        letters.compile_json_schema(SLOW, limits=HUGE, timeout=0.05)
    assert isinstance(caught.value, sg.GrammarError)
    assert time.monotonic() - begin < 2
    with pytest.raises(sg.GrammarError, match="not negative"):
        letters.compile_regex("a", timeout=-1)
    assert accepts(letters.compile_regex("ab", timeout=60), "ab")


def test_cancel_from_another_thread(letters):
    cancel = sg.CancelToken()
    assert not cancel.cancelled
    timer = threading.Timer(0.05, cancel.cancel)
    timer.start()
    with pytest.raises(sg.GrammarInterrupted, match="was cancelled"):
        letters.compile_json_schema(SLOW, limits=HUGE, cancel=cancel)
    timer.join()
    assert cancel.cancelled


def test_threads_compile_and_match(letters):
    results = []

    def work(seed):
        for i in range(30):
            grammar = letters.compile_regex(f"[a-z]{{{i % 7}}}x{seed}")
            results.append(accepts(grammar, "k" * (i % 7) + f"x{seed}"))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 120


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_fills_batches(letters):
    import numpy

    compiler = sg.GrammarCompiler(letters.tokenizer, max_threads=3)
    matchers = [sg.GrammarMatcher(compiler.compile_regex("[a-c]*")) for _ in range(8)]
    bitmask = numpy.zeros((8, 4), dtype=numpy.int32)
    sg.batch_fill_next_token_bitmask(matchers, bitmask)
    child = os.fork()
    if child == 0:
        bitmask[...] = 0
        sg.batch_fill_next_token_bitmask(matchers, bitmask)
        del compiler, matchers  # must not wait for the threads that it has not
        os._exit(0 if bitmask.any(axis=1).all() else 1)
    until = time.monotonic() + 60
    ended = (0, 0)
    while ended[0] == 0 and time.monotonic() < until:
        ended = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, 9)
    assert ended == (child, 0)


def test_the_cache_folder(tmp_path):
    pieces = [b"", b""] + [b"%05d" % i for i in range(20_000)]  # small vocabularies are not kept
    tokenizer = sg.Tokenizer.from_bytes(pieces, stop_token_ids=[END])
    for _ in range(2):
        compiler = sg.GrammarCompiler(tokenizer, cache_folder=tmp_path)
        assert accepts(compiler.compile_regex("[0-9]{5}"), "00012")
        del compiler
        assert len(list(tmp_path.glob("*.vocabulary"))) == 1


def test_paths_as_tokenizers():
    compiler = sg.GrammarCompiler(str(MODEL))
    assert compiler.vocab_size == 2048
    assert accepts(compiler.compile_regex("a+"), "aaa")
