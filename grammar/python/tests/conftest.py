import sys
from pathlib import Path

import pytest

import specdec_grammar as sg

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "models" / "target"

END = 1
TOKENS = [b"", b""] + [bytes([c]) for c in range(32, 127)] + [b'{"', b'":', b'"}', b"ab", b"true"]


@pytest.fixture(scope="session")
def letters():
    """A compiler of printable ASCII and a few pairs: 102 tokens."""
    return sg.GrammarCompiler(sg.Tokenizer.from_bytes(TOKENS, stop_token_ids=[END]))


@pytest.fixture(scope="session")
def compiler():
    """A compiler of the shipped model's tokenizer."""
    return sg.GrammarCompiler(MODEL / "tokenizer.json")


@pytest.fixture(scope="session")
def record(compiler):
    return compiler.compile_json_schema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
            "required": ["name", "age"],
            "additionalProperties": False,
        },
    )


def bits(row):
    """The ids of a row's bits."""
    words = [int(word) & 0xFFFFFFFF for word in row]
    return [32 * w + i for w, word in enumerate(words) for i in range(32) if word >> i & 1]


sys.modules["support"] = sys.modules[__name__]
