import copy
import random

import numpy
import pytest
from support import END, TOKENS, bits

import specdec_grammar as sg


def token(text):
    return TOKENS.index(text)


def test_accepts_what_the_grammar_allows(letters):
    matcher = sg.GrammarMatcher(letters.compile_regex("ab?c"))
    assert not matcher.accept_token(token(b"b"))
    assert matcher.accept_token(token(b"ab"))
    assert not matcher.is_completed()
    assert not matcher.accept_string("b")
    assert matcher.accept_string(b"c")
    assert matcher.is_completed() and not matcher.is_terminated()
    assert matcher.allowed_tokens() == [END] == matcher.stop_token_ids
    assert matcher.is_allowed(END) and not matcher.is_allowed(token(b"a"))
    assert matcher.accept_token(END)
    assert matcher.is_terminated()
    assert matcher.num_steps == 3


def test_rollback_reset_and_copies(compiler):
    generator = random.Random(1)
    matcher = sg.GrammarMatcher(compiler.compile_json_schema({"type": "array"}))
    seen = [matcher.allowed_tokens()]
    while matcher.num_steps < 30:
        going_on = [t for t in seen[-1] if t not in matcher.stop_token_ids]
        assert matcher.accept_token(generator.choice(going_on))
        if matcher.is_completed():
            matcher.rollback()
        else:
            seen.append(matcher.allowed_tokens())
    other = copy.copy(matcher)
    fork = copy.deepcopy(matcher.fork())
    for steps in (1, 3, 20):
        matcher.rollback(steps)
        assert matcher.allowed_tokens() == seen[matcher.num_steps]
    matcher.rollback()
    assert matcher.num_steps == 5
    matcher.reset()
    assert matcher.allowed_tokens() == seen[0]
    assert other.num_steps == 30 == fork.num_steps
    assert other.allowed_tokens() == seen[-1]


def test_knows_what_is_forced(compiler, record):
    matcher = sg.GrammarMatcher(record)
    assert matcher.find_jump_forward_string() == '{"name":"'
    assert matcher.forced_bytes() == b'{"name":"'
    forced = matcher.forced_tokens()
    assert compiler.tokenizer.decode(forced) in b'{"name":"' and forced
    assert matcher.forced_tokens(1) == forced[:1]
    for i in forced:
        assert matcher.accept_token(i)
    matcher.reset()
    assert matcher.accept_string('{"name":"x')
    assert matcher.find_jump_forward_string() == ""


def test_jump_forward_has_whole_characters(letters):
    half = letters.compile_lark('start: "é" | "è"')  # the same first byte
    matcher = sg.GrammarMatcher(half)
    assert matcher.forced_bytes() == "é".encode()[:1]
    assert matcher.find_jump_forward_string() == ""


def test_captures_what_marked_rules_matched(letters):
    grammar = 'start: x "c"\nx[capture]: y*\ny[capture="a y"]: /a|b/'
    matcher = sg.GrammarMatcher(letters.compile_lark(grammar))
    assert matcher.captures() == [("x", b"")]
    assert matcher.accept_token(token(b"ab")) and matcher.accept_string("c")
    assert matcher.captures() == [("x", b"ab"), ("a y", b"a"), ("a y", b"b")]
    matcher.rollback(2)
    assert sg.GrammarMatcher(letters.compile_lark('start: "a"')).captures() == []


def test_explains_for_people(record):
    assert "a value begins: an object" in sg.GrammarMatcher(record).explain()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_fill_is_the_allowed_tokens(record, library):
    if library == "torch":
        torch = pytest.importorskip("torch")
        bitmask = torch.full((3, 64), 7, dtype=torch.int32)
    else:
        bitmask = numpy.full((3, 64), 7, dtype=numpy.int32)
    matcher = sg.GrammarMatcher(record)
    assert matcher.fill_next_token_bitmask(bitmask, 1) is True
    assert bits(bitmask[1]) == matcher.allowed_tokens()
    assert (bitmask[0] == 7).all() and (bitmask[2] == 7).all()
    row = bitmask[2]
    assert matcher.fill_next_token_bitmask(row)
    assert bits(bitmask[2]) == matcher.allowed_tokens(), "a view is the same memory"


def test_fill_of_other_objects(letters):
    """What has a buffer, or DLPack without the quick access of new torch tensors."""
    grammar = letters.compile_regex("[a-f]*")
    matcher = sg.GrammarMatcher(grammar)
    expected = matcher.allowed_tokens()
    words = memoryview(bytearray(16)).cast("i")
    assert matcher.fill_next_token_bitmask(words)
    assert bits(words) == expected

    class OnlyDlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = numpy.zeros((2, 4), dtype=numpy.int32)
    assert matcher.fill_next_token_bitmask(OnlyDlpack(array), 1)
    assert bits(array[1]) == expected and not array[0].any()


def test_vocabulary_wider_than_the_tokenizer():
    wide = sg.Tokenizer.from_bytes(TOKENS, vocab_size=200, stop_token_ids=[END])
    compiler = sg.GrammarCompiler(wide)
    matcher = sg.GrammarMatcher(compiler.compile_regex("[^]*"))
    bitmask = numpy.full((1, 7), -1, dtype=numpy.int32)
    assert compiler.vocab_size == 200 == matcher.vocab_size
    matcher.fill_next_token_bitmask(bitmask)
    assert bits(bitmask[0]) == list(range(1, len(TOKENS)))
    assert not matcher.accept_token(150)


def test_batch_is_the_same_as_singles(letters):
    generator = random.Random(2)
    grammars = [letters.compile_regex("[a-z]{3,}"), letters.compile_builtin_json_grammar()]
    for count in (0, 1, 2, 17):
        matchers = [sg.GrammarMatcher(grammars[i % 2]) for i in range(count)]
        for i, matcher in enumerate(matchers):
            for _ in range(i % 4):
                ids = [t for t in matcher.allowed_tokens() if t != END]
                assert not ids or matcher.accept_token(generator.choice(ids))
        bitmask = numpy.full((count + 1, 4), 5, dtype=numpy.int32)
        rows = list(range(count, 0, -1))
        sg.batch_fill_next_token_bitmask(matchers, bitmask, rows)
        assert (bitmask[0] == 5).all()
        for row, matcher in zip(rows, matchers):
            assert bits(bitmask[row]) == matcher.allowed_tokens()
        sg.batch_fill_next_token_bitmask(matchers, bitmask)
        for row, matcher in enumerate(matchers):
            assert bits(bitmask[row]) == matcher.allowed_tokens()


def test_a_limit_ends_the_text(letters):
    grammar = letters.compile_json_schema({"type": "object"}, limits={"max_states": 300})
    matcher = sg.GrammarMatcher(grammar)
    assert matcher.accept_string('{"')
    while matcher.accept_string("a"):
        assert matcher.limit is None
    assert 1 < matcher.num_steps < 300
    assert "raise max_states" in matcher.limit
    assert matcher.allowed_tokens() == [] and not matcher.is_completed()
    matcher.rollback()
    assert matcher.limit is None
