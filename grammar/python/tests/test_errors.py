"""Mistakes of the caller are exceptions with C++'s messages, and change nothing."""

import threading

import numpy
import pytest
from support import END, MODEL, TOKENS

import specdec_grammar as sg


@pytest.fixture
def matcher(letters):
    return sg.GrammarMatcher(letters.compile_regex("ab"))


def error(call, *arguments):
    with pytest.raises(sg.GrammarError) as caught:
        call(*arguments)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_ids_outside_the_vocabulary(matcher):
    for token in (-1, len(TOKENS), 1 << 30):
        expected = f"token {token} is outside the vocabulary of {len(TOKENS)} tokens"
        assert error(matcher.accept_token, token) == expected
        assert error(matcher.is_allowed, token) == expected
    assert "outside every vocabulary" in error(matcher.accept_token, 1 << 40)
    with pytest.raises(TypeError):
        matcher.accept_token("a")
    with pytest.raises(TypeError):
        matcher.accept_string(3)
    assert matcher.num_steps == 0


def test_bitmasks_of_the_wrong_kind(matcher):
    fill = matcher.fill_next_token_bitmask
    assert error(fill, numpy.zeros((1, 5), numpy.int32)) == (
        f"the bitmask has shape [1, 5]; it must be [rows, 4] for {len(TOKENS)} tokens"
    )
    assert error(fill, numpy.zeros((1, 4), numpy.int64)) == (
        "the bitmask holds int64; it must hold int32"
    )
    assert "holds uint32" in error(fill, numpy.zeros((1, 4), numpy.uint32))
    assert "holds float32" in error(fill, numpy.zeros((1, 4), numpy.float32))
    assert "do not lie one after the other" in error(fill, numpy.zeros((4, 8), numpy.int32)[:, ::2])
    assert "do not lie one after the other" in error(fill, numpy.zeros((4, 8), numpy.int32)[:, :4])
    assert "has 3 dimensions" in error(fill, numpy.zeros((1, 1, 4), numpy.int32))
    assert "has 0 dimensions" in error(fill, numpy.zeros((), numpy.int32))
    frozen = numpy.zeros((1, 4), numpy.int32)
    frozen.flags.writeable = False
    assert "cannot be written to" in error(fill, frozen)
    assert "is of type list" in error(fill, [[0, 0, 0, 0]])
    bitmask = numpy.zeros((2, 4), numpy.int32)
    assert error(fill, bitmask, 2) == "there is no row 2 in the bitmask of shape [2, 4]"
    assert "no row -1" in error(fill, bitmask, -1)
    assert not bitmask.any()


def test_torch_bitmasks_of_the_wrong_kind(matcher):
    torch = pytest.importorskip("torch")
    fill = matcher.fill_next_token_bitmask
    assert "holds int64" in error(fill, torch.zeros((1, 4), dtype=torch.int64))
    assert "do not lie" in error(fill, torch.zeros((4, 4), dtype=torch.int32).T)
    assert "shape [4, 1]" in error(fill, torch.zeros((4, 1), dtype=torch.int32))
    with pytest.raises(Exception, match="meta|storage|device|memory"):
        fill(torch.zeros((1, 4), dtype=torch.int32, device="meta"))


def test_after_the_end(matcher):
    assert matcher.accept_string("ab") and matcher.accept_token(END)
    bitmask = numpy.zeros((1, 4), numpy.int32)
    for call in (
        lambda: matcher.accept_token(END),
        lambda: matcher.accept_string("a"),
        lambda: matcher.fill_next_token_bitmask(bitmask),
        lambda: matcher.is_allowed(END),
        matcher.allowed_tokens,
    ):
        assert error(call).startswith("the text has ended with an end token")
    assert error(sg.batch_fill_next_token_bitmask, [matcher], bitmask).startswith("matcher 0: the")
    assert matcher.find_jump_forward_string() == "" and matcher.forced_tokens() == []
    matcher.rollback()
    assert matcher.allowed_tokens() == [END]


def test_rollback_too_far(matcher):
    assert matcher.accept_string("a")
    assert error(matcher.rollback, 2) == "2 steps to roll back, but 1 were accepted"
    assert error(matcher.rollback, -1).startswith("-1 steps")


def test_batches(letters, matcher):
    bitmask = numpy.zeros((2, 4), numpy.int32)
    fill = sg.batch_fill_next_token_bitmask
    other = sg.GrammarCompiler(letters.tokenizer).compile_regex("a")
    assert "stands twice" in error(fill, [matcher, matcher], bitmask)
    assert "another engine" in error(fill, [matcher, sg.GrammarMatcher(other)], bitmask)
    assert "shall fill row 2" in error(fill, [matcher], bitmask, [2])
    assert error(fill, [matcher], bitmask, []) == "1 matchers for 0 indices"
    assert "row 2" in error(fill, [matcher, matcher.copy(), matcher.copy()], bitmask)
    for wrong in ([None], [3], [bitmask], 4):
        with pytest.raises(TypeError):
            fill(wrong, bitmask)

    class Unfinished(sg.GrammarMatcher):
        def __init__(self):
            pass

    for wrong in (Unfinished, lambda: sg.GrammarMatcher.__new__(sg.GrammarMatcher)):
        with pytest.raises(TypeError, match="not initialized"):
            fill([matcher, wrong()], bitmask)
    assert not bitmask.any()


def test_a_matcher_in_several_threads(letters):
    matcher = sg.GrammarMatcher(letters.compile_regex("a*"))
    wrong, accepted = [], []

    def work():
        bitmask = numpy.zeros((1, 4), numpy.int32)
        for _ in range(2000):
            try:
                accepted.append(matcher.accept_token(TOKENS.index(b"a")))
                matcher.fill_next_token_bitmask(bitmask)
            except sg.GrammarError as problem:
                if "used by two threads at once" not in str(problem):
                    wrong.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert matcher.num_steps == len(accepted) and all(accepted)


def test_grammars(letters):
    assert "#/type" in error(letters.compile_json_schema, {"type": 1})
    assert "no JSON value satisfies" in error(letters.compile_json_schema, False)
    assert "1:" in error(letters.compile_json_schema, '{"type": }')
    assert error(letters.compile_regex, "(").startswith("regex: ")
    assert error(letters.compile_grammar, "root ::= x").startswith("gbnf:1:")
    assert error(letters.compile_lark, "start: missing").startswith("lark:1:")
    assert "there is no kind of grammar 'xml'" in error(sg.GrammarSource, "xml")
    assert "order is 'none'" in error(lambda: letters.compile_json_schema({}, order="none"))
    assert "there is no limit 'max'" in error(lambda: letters.compile_regex("a", limits={"max": 1}))
    assert "a tag has begin" in error(letters.compile_structural_tag, [{"begin": "<a>"}])
    assert "needs a tokenizer" in error(lambda: letters.compile_regex("a", canonical=True))
    assert "a tag is of type str" in error(letters.compile_structural_tag, "<a>")


def type_error(call, *arguments, **keywords):
    with pytest.raises(TypeError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_keywords(letters):
    assert type_error(letters.compile_regex, "a", colour="red").startswith(
        "there is no keyword 'colour'; known: cancel, canonical, "
    )
    for call in (letters.compile_json_schema, letters.compile_builtin_json_grammar):
        arguments = [{}] if call == letters.compile_json_schema else []
        message = type_error(call, *arguments, wihtespace="any")
        assert "no keyword 'wihtespace'; did you mean 'whitespace'? Known: cancel" in message
    assert "did you mean 'timeout'?" in type_error(letters.compile_regex, "a", timout=1)
    assert "did you mean 'start'?" in type_error(sg.GrammarSource, "gbnf", strat="x")
    assert type_error(letters.compile_regex, 5) == "text is of type int; give a str"
    assert "order is of type NoneType" in type_error(letters.compile_json_schema, {}, order=None)


def test_choices(letters):
    expected = "choices is 'yes'; give a list of texts: [\"yes\", \"no\"]"
    assert error(letters.compile_choice, "yes") == expected
    assert error(lambda: sg.GrammarSource("choice", choices="yes")) == expected
    assert "choices is 5" in error(letters.compile_choice, 5)
    assert error(letters.compile_choice, ["a", 1]) == "choice 1 is of type int; each must be a str"


def test_registries(letters):
    def compile_with(registry):
        letters.compile_json_schema({"$ref": "http://a/b"}, registry=registry)

    for registry in ([("http://a/b", "{}")], "remotes.jsonl", None):
        message = error(compile_with, registry)
        assert message.startswith(f"registry is of type {type(registry).__name__}; give a dict from")
    assert "'http://a/b' of type str with a value of type int; give" in error(
        compile_with, {"http://a/b": 3}
    )
    assert "has 1 of type int" in error(compile_with, {1: "{}"})


def test_limits(letters):
    for value in (-1, 1 << 64, 0.5, "9"):
        message = error(lambda: letters.compile_regex("a", limits={"max_states": value}))
        assert message == f"limit 'max_states' is {value!r}; give an int from 0 to 2**64 - 1"
    deep = "root ::= " + "(" * 9_999 + '"a"' + ")" * 9_999
    assert "max_nesting = 1000" in error(
        lambda: letters.compile_grammar(deep, limits={"max_nesting": 10_000})
    )
    assert "limits is of type int" in error(lambda: letters.compile_regex("a", limits=3))
    matcher = sg.GrammarMatcher(letters.compile_regex("ab"))
    assert error(matcher.forced_tokens, -1) == "limit is -1; it must not be negative"
    assert matcher.forced_tokens(0) == []


def test_compilers(letters):
    for wrong in (None, 3):
        assert type_error(sg.GrammarCompiler, wrong).startswith(
            f"the tokenizer is of type {type(wrong).__name__}; give a Tokenizer, the path of one"
        )
    for name in ("max_threads", "cache_limit_bytes"):
        assert error(lambda: sg.GrammarCompiler(letters.tokenizer, **{name: -1})) == (
            f"{name} is -1; it must not be negative"
        )


def test_tokenizers(tmp_path):
    assert "no such file" in error(sg.Tokenizer, str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    assert "tokenizer.json" in error(sg.Tokenizer, tmp_path)
    empty = sg.Tokenizer.from_bytes([b"a"], stop_token_ids=[])
    assert "name at least one" in error(sg.GrammarCompiler, empty)
    beyond = sg.Tokenizer.from_bytes([b"a"], stop_token_ids=[1])
    assert error(sg.GrammarCompiler, beyond) == "end token 1 is outside the vocabulary of 1 tokens"
    for width in (1, 0, -1):
        for make, count in (
            (lambda: sg.Tokenizer.from_bytes([b"a", b""], vocab_size=width, stop_token_ids=[1]), 2),
            (lambda: sg.Tokenizer(MODEL, vocab_size=width), 2048),
        ):
            assert f"vocab_size is {width}, but the tokenizer has {count} tokens" in error(make)
    assert "encodes no texts" in error(empty.encode, "a")
