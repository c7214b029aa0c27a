"""Generation with transformers on the shipped model: what comes out always validates."""

import gzip
import json
import random

import pytest
from support import MODEL, ROOT

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
jsonschema = pytest.importorskip("jsonschema")

import specdec_grammar as sg
from specdec_grammar.hf import LogitsProcessor

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)  # the model is so small that more only wait for each other
    return transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(MODEL, padding_side="left")


@pytest.fixture(scope="module")
def compiler(tokenizer, model):
    return sg.GrammarCompiler(
        sg.Tokenizer.from_huggingface(
            tokenizer, vocab_size=model.config.vocab_size, stop_token_ids=[tokenizer.eos_token_id]
        )
    )


def generate(model, tokenizer, prompts, processor, **options):
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    output = model.generate(
        **inputs,
        logits_processor=[processor],
        pad_token_id=tokenizer.pad_token_id,
        **{"max_new_tokens": 80, "do_sample": False, **options},
    )
    new = output[:, inputs["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new, skip_special_tokens=True)


def test_greedy_and_sampled_outputs_validate(model, tokenizer, compiler):
    grammar = compiler.compile_json_schema(PERSON)
    texts = generate(model, tokenizer, ["A person: "], LogitsProcessor(grammar))
    for seed in range(2):
        torch.manual_seed(seed)
        texts += generate(
            model, tokenizer, ["A person: ", "Fellow citizens, "], LogitsProcessor(grammar),
            do_sample=True, temperature=1.5,
        )
    assert len(texts) == 5
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)


def test_schemas_of_the_bench(model, tokenizer, compiler):
    """Real schemas: each output is complete and valid, or was cut off while it could go on."""
    data = (ROOT / "tests/data/grammar/jsonschemabench_subset.jsonl.gz").read_bytes()
    lines = gzip.decompress(data).decode().splitlines()
    cases = [json.loads(line) for line in lines]
    random.Random(1).shuffle(cases)
    complete = 0
    for case in cases[:4]:
        grammar = compiler.compile_json_schema(case["schema"])
        torch.manual_seed(1)
        processor = LogitsProcessor(grammar)
        [text] = generate(model, tokenizer, ["JSON: "], processor, do_sample=True, max_new_tokens=50)
        matcher = sg.GrammarMatcher(grammar)
        assert matcher.accept_string(text), text
        if matcher.is_completed():
            complete += 1
            validator = jsonschema.validators.validator_for(case["schema"])
            validator(case["schema"]).validate(json.loads(text))
    assert complete >= 1


def test_a_grammar_for_each_prompt_and_beams(model, tokenizer, compiler):
    grammars = [compiler.compile_regex("[ab]{5,9}"), compiler.compile_choice(["yes", "no way"])]
    texts = generate(model, tokenizer, ["One: ", "Two: "], LogitsProcessor(grammars), num_beams=2,
                     num_return_sequences=2)
    assert len(texts) == 4
    assert all(set(text) <= set("ab") and 5 <= len(text) <= 9 for text in texts[:2])
    assert set(texts[2:]) <= {"yes", "no way"}


def test_greedy_is_the_best_allowed_token_each_time(model, tokenizer, compiler):
    grammar = compiler.compile_regex("[0-9]{4}-[a-z ]{3,8}")
    [text] = generate(model, tokenizer, ["In "], LogitsProcessor(grammar))
    ids = tokenizer("In ", return_tensors="pt")["input_ids"]
    matcher = sg.GrammarMatcher(grammar)
    while not matcher.is_terminated():
        logits = model(ids).logits[0, -1]
        allowed = torch.tensor(matcher.allowed_tokens())
        best = allowed[logits[allowed].argmax()]
        assert matcher.accept_token(int(best))
        ids = torch.cat([ids, best.view(1, 1)], dim=1)
    assert tokenizer.decode(ids[0, -matcher.num_steps :], skip_special_tokens=True) == text


def test_prompt_lookup_decoding(model, tokenizer, compiler):
    """Several tokens a forward, some of which are taken back."""
    grammar = compiler.compile_json_schema(PERSON)
    prompt = ['A list: {"name":"abab","age":12,"tags":["a","bc"]} and again: ']
    plain = generate(model, tokenizer, prompt, LogitsProcessor(grammar))
    assert generate(model, tokenizer, prompt, LogitsProcessor(grammar), prompt_lookup_num_tokens=3) == plain


def test_mistakes(model, tokenizer, compiler):
    with pytest.raises(sg.GrammarError, match="there is no grammar"):
        LogitsProcessor([])
    for wrong in (None, [None]):
        with pytest.raises(TypeError, match="a grammar is of type NoneType; give a CompiledGrammar"):
            LogitsProcessor(wrong)
    grammar = compiler.compile_regex("ab")
    scores = torch.zeros(1, compiler.vocab_size)
    processor = LogitsProcessor([grammar, grammar])
    with pytest.raises(sg.GrammarError, match="1 rows for 2 grammars"):
        processor(torch.zeros(1, 3, dtype=torch.long), scores)
    processor = LogitsProcessor(grammar)
    masked = processor(torch.zeros(1, 3, dtype=torch.long), scores)
    assert not scores.any() and torch.isinf(masked).sum() == compiler.vocab_size - len(
        sg.GrammarMatcher(grammar).allowed_tokens()
    )
    with pytest.raises(sg.GrammarError, match="token 0 was generated"):
        processor(torch.zeros(1, 4, dtype=torch.long), scores)
    with pytest.raises(sg.GrammarError, match="serves one call"):
        processor(torch.zeros(1, 2, dtype=torch.long), scores)
    with pytest.raises(sg.GrammarError, match="do not belong together"):
        LogitsProcessor(grammar)(torch.zeros(1, 3, dtype=torch.long), scores[:, :100])


def test_wider_scores_are_masked(compiler):
    grammar = compiler.compile_regex("[^]*")
    scores = torch.zeros(2, compiler.vocab_size + 70)
    masked = LogitsProcessor(grammar)(torch.zeros(2, 1, dtype=torch.long), scores)
    assert torch.isinf(masked[:, compiler.vocab_size :]).all()
    assert not torch.isinf(masked[:, : compiler.vocab_size]).all()
