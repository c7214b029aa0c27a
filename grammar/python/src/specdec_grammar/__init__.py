"""Exact token masks for JSON Schema, regular expressions, GBNF, Lark and tags.

A `Tokenizer` says what tokens stand for, a `GrammarCompiler` compiles grammars for it, a
`GrammarMatcher` follows one text and says which tokens may come next. Masks are int32 bitmasks,
[batch, ceil(vocab_size / 32)]: bit i of word w is token 32 * w + i, 1 = allowed.
"""

from ._engine import (
    CancelToken,
    CompiledGrammar,
    GrammarError,
    GrammarInterrupted,
    GrammarMatcher,
    Tag,
    batch_fill_next_token_bitmask,
    grammar_kinds,
)
from .bitmask import (
    allocate_token_bitmask,
    apply_token_bitmask_inplace,
    get_bitmask_shape,
    reset_token_bitmask,
)
from .compiler import GrammarCompiler
from .source import GrammarSource
from .tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "CancelToken",
    "CompiledGrammar",
    "GrammarCompiler",
    "GrammarError",
    "GrammarInterrupted",
    "GrammarMatcher",
    "GrammarSource",
    "Tag",
    "Tokenizer",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "batch_fill_next_token_bitmask",
    "get_bitmask_shape",
    "grammar_kinds",
    "reset_token_bitmask",
]
