"""Tokenizers, read from files or taken from transformers."""

from __future__ import annotations

import operator
import os
import tempfile
from typing import TYPE_CHECKING, Sequence

from . import _engine

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Tokenizer:
    """What the tokens of a model stand for, and which of them end a text.

    vocab_size: width of the model's logits, where that is more than the tokenizer has tokens; the
    tokens beyond are never allowed. stop_token_ids: the tokens that end a text; by default those
    with which a model ends its answer (<eos>, <end_of_turn>, <|im_end|>, <|eot_id|>, ...).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> None:
        """Reads a tokenizer.json, a SentencePiece tokenizer.model, a GGUF file, or a folder with
        one of the first two."""
        self._set(_engine.load_tokenizer(os.fspath(path)), None, vocab_size, stop_token_ids)

    @classmethod
    def from_huggingface(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> Tokenizer:
        """Takes the tokenizer of a transformers model, as it saves itself."""
        if not hasattr(tokenizer, "save_pretrained"):
            raise TypeError(
                f"the tokenizer is of type {type(tokenizer).__name__}; give a Tokenizer, the path of "
                "one, or a tokenizer of transformers"
            )
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            return cls(folder, vocab_size=vocab_size, stop_token_ids=stop_token_ids)

    @classmethod
    def from_bytes(
        cls,
        tokens: Sequence[bytes],
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int],
    ) -> Tokenizer:
        """Takes the bytes that each token stands for, b"" for control tokens. Texts cannot be
        encoded then, and canonical grammars are refused."""
        self = cls.__new__(cls)
        self._set(None, list(tokens), vocab_size, stop_token_ids)
        return self

    def _set(
        self,
        text: _engine.TextTokenizer | None,
        tokens: list[bytes] | None,
        vocab_size: int | None,
        stop_token_ids: Sequence[int] | None,
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._vocab_size = vocab_size
        if self.vocab_size < self._held:
            raise _engine.GrammarError(
                f"vocab_size is {vocab_size}, but the tokenizer has {self._held} tokens; give the "
                "width of the model's logits"
            )
        self._stop_token_ids = None if stop_token_ids is None else list(stop_token_ids)

    @property
    def vocab_size(self) -> int:
        """Width of the model's logits."""
        return self._held if self._vocab_size is None else self._vocab_size

    @property
    def _held(self) -> int:
        return len(self._tokens) if self._text is None else self._text.vocab_size

    @property
    def stop_token_ids(self) -> list[int]:
        """The tokens that end a text."""
        if self._stop_token_ids is None:
            return self._text.end_tokens()
        return list(self._stop_token_ids)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without <bos>."""
        return self._encoder().encode(text)

    def decode(self, token_ids: Sequence[int]) -> bytes:
        """The bytes of tokens; control tokens, and those beyond the tokenizer's, have none."""
        ids = [operator.index(token) for token in token_ids]
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise _engine.GrammarError(
                    f"token {token} is outside the vocabulary of {self.vocab_size} tokens"
                )
        ids = [token for token in ids if token < self._held]
        if self._text is None:
            return b"".join(self._tokens[i] for i in ids)
        return self._text.decode(ids)

    def _encoder(self) -> _engine.TextTokenizer:
        if self._text is None:
            raise _engine.GrammarError("a tokenizer that was made of bytes encodes no texts")
        return self._text

    def _make_engine(self, threads: int, cache_bytes: int, cache_folder: str) -> _engine.Engine:
        rest = (self._vocab_size or 0, self._stop_token_ids, threads, cache_bytes, cache_folder)
        if self._text is None:
            return _engine.Engine.of_bytes(self._tokens, *rest)
        return _engine.Engine.of_tokenizer(self._text, *rest)
