"""Generation with transformers under a grammar."""

from __future__ import annotations

from typing import Iterable, Sequence

import torch
import transformers

from ._engine import CompiledGrammar, GrammarError, GrammarMatcher, batch_fill_next_token_bitmask
from .bitmask import allocate_token_bitmask, apply_token_bitmask_inplace


class LogitsProcessor(transformers.LogitsProcessor):
    """Keeps `model.generate` in a grammar. One object serves one call of generate.

        model.generate(**inputs, logits_processor=[LogitsProcessor(grammar)])

    grammars: one for all prompts, or one for each. Beams, several sequences for a prompt, and
    assisted generation work: the rows of each call are found by their tokens. Where a text has
    ended only stop tokens follow.
    """

    supports_continuous_batching = False

    def __init__(self, grammars: CompiledGrammar | Sequence[CompiledGrammar]) -> None:
        single = isinstance(grammars, CompiledGrammar)
        if not single and not isinstance(grammars, Iterable):
            raise TypeError(_WRONG_TYPE.format(type(grammars).__name__))
        self._grammars = [grammars] if single else list(grammars)
        for grammar in self._grammars:
            if not isinstance(grammar, CompiledGrammar):
                raise TypeError(_WRONG_TYPE.format(type(grammar).__name__))
        if not self._grammars:
            raise GrammarError("there is no grammar; give one, or one for each prompt")
        self._prompt_length: int | None = None
        self._places: dict[tuple[int, tuple[int, ...]], GrammarMatcher] = {}
        self._bitmask: torch.Tensor | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """input_ids: [rows, length]; scores: [rows, vocabulary]."""
        if self._prompt_length is None:
            self._prompt_length = input_ids.shape[1]
        if input_ids.shape[1] < self._prompt_length:
            raise GrammarError("a LogitsProcessor serves one call of generate; make another one")
        if input_ids.shape[0] % len(self._grammars) != 0:
            raise GrammarError(
                f"{input_ids.shape[0]} rows for {len(self._grammars)} grammars; give one grammar, or "
                "one for each prompt"
            )
        rows = input_ids[:, self._prompt_length :].tolist()
        matchers = self._matchers(rows)
        self._fill(matchers, scores.shape[-1])
        scores = scores.clone(memory_format=torch.contiguous_format)
        apply_token_bitmask_inplace(scores, self._bitmask)
        return scores

    def _matchers(self, rows: list[list[int]]) -> list[GrammarMatcher]:
        each = len(rows) // len(self._grammars)
        places = {}
        matchers = []
        for i, row in enumerate(rows):
            key = (i // each, tuple(row))
            matchers.append(self._place(key).copy())
            places[key] = matchers[-1]
        self._places = places
        return matchers

    def _place(self, key: tuple[int, tuple[int, ...]]) -> GrammarMatcher:
        """The place after the tokens of a row: most often one token after that of a row before."""
        which, tokens = key
        known = self._places.get(key)
        if known is not None:
            return known
        before = self._places.get((which, tokens[:-1])) if tokens else None
        if before is not None:
            matcher, rest = before.copy(), tokens[-1:]
        else:
            matcher, rest = GrammarMatcher(self._grammars[which]), tokens
        for token in rest:
            if not matcher.is_terminated() and not matcher.accept_token(token):
                raise GrammarError(
                    f"token {token} was generated, which the grammar forbids; put this processor "
                    "after those that force or change tokens"
                )
        return matcher

    def _fill(self, matchers: list[GrammarMatcher], columns: int) -> None:
        vocab_size = matchers[0].vocab_size
        if vocab_size > columns:
            raise GrammarError(
                f"the tokenizer has {vocab_size} tokens, but the model's logits only {columns} "
                "columns; they do not belong together"
            )
        if self._bitmask is None or self._bitmask.shape[0] != len(matchers):
            self._bitmask = allocate_token_bitmask(len(matchers), vocab_size)
        open_rows = [i for i, matcher in enumerate(matchers) if not matcher.is_terminated()]
        batch_fill_next_token_bitmask([matchers[i] for i in open_rows], self._bitmask, open_rows)
        for i, matcher in enumerate(matchers):
            if matcher.is_terminated():
                self._bitmask[i] = 0
                for token in matcher.stop_token_ids:
                    word, bit = divmod(token, 32)
                    self._bitmask[i, word] |= _INT32_BITS[bit]


_WRONG_TYPE = "a grammar is of type {}; give a CompiledGrammar, or a list with one for each prompt"
_INT32_BITS = [1 << bit if bit < 31 else -(1 << 31) for bit in range(32)]
