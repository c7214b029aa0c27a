import pytest
from support import MODEL, ROOT

import specdec_grammar as sg

FILES = ["tokenizer.json", "tokenizer.model"]
TEXT = 'Fellow citizens, {"name": "Ünïcode", "n": 12}\n  two'


@pytest.mark.parametrize("name", FILES)
def test_files(name):
    tokenizer = sg.Tokenizer(MODEL / name)
    assert tokenizer.vocab_size == 2048
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT.encode()
    assert tokenizer.stop_token_ids == sg.Tokenizer(MODEL).stop_token_ids
    assert 1 in tokenizer.stop_token_ids  # <eos>


def test_files_agree():
    a, b = (sg.Tokenizer(MODEL / name) for name in FILES)
    assert a.encode(TEXT) == b.encode(TEXT)
    masks = []
    for tokenizer in (a, b):
        compiler = sg.GrammarCompiler(tokenizer)
        matcher = sg.GrammarMatcher(compiler.compile_json_schema({"type": "string"}))
        assert matcher.accept_string('"x')
        masks.append(matcher.allowed_tokens())
    assert masks[0] == masks[1] and len(masks[0]) > 1000


def test_gguf():
    files = sorted(ROOT.glob("tests/data/**/*.gguf")) + sorted(ROOT.glob("models/smollm2/*.gguf"))
    if not files:
        pytest.skip("there is no GGUF file in the tree")
    tokenizer = sg.Tokenizer(files[0])
    compiler = sg.GrammarCompiler(tokenizer)
    matcher = sg.GrammarMatcher(compiler.compile_regex("[a-z ]+"))
    for token in tokenizer.encode("once upon a time"):
        assert matcher.accept_token(token)
    assert matcher.is_completed()


def test_transformers_tokenizer():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(MODEL)
    tokenizer = sg.Tokenizer.from_huggingface(theirs)
    assert tokenizer.vocab_size == len(theirs)
    assert tokenizer.encode(TEXT) == theirs.encode(TEXT, add_special_tokens=False)
    compiler = sg.GrammarCompiler(theirs)
    matcher = sg.GrammarMatcher(compiler.compile_regex("[a-z ]+"))
    for token in theirs.encode("once upon a time", add_special_tokens=False):
        assert matcher.accept_token(token)
    assert matcher.accept_token(theirs.eos_token_id)


def test_decode_of_ids_outside_the_vocabulary():
    of_bytes = sg.Tokenizer.from_bytes([b"a", b"b"], vocab_size=4, stop_token_ids=[0])
    assert of_bytes.decode([1, 3, 0]) == b"ba"
    of_file = sg.Tokenizer(MODEL, vocab_size=3000)
    for tokenizer, size in ((of_bytes, 4), (of_file, 3000)):
        assert tokenizer.decode([size - 1]) == b""
        for token in (-1, size, 99999, 1 << 40):
            with pytest.raises(sg.GrammarError) as caught:
                tokenizer.decode([0, token])
            assert str(caught.value) == f"token {token} is outside the vocabulary of {size} tokens"
