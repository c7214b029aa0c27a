"""Compiling grammars."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Sequence

from ._engine import CancelToken, CompiledGrammar, GrammarError, Tag
from .source import KEYWORDS, SCHEMA_KEYWORDS, GrammarSource, check_keywords
from .tokenizer import Tokenizer


class GrammarCompiler:
    """Compiles grammars for one tokenizer. Equal grammars are compiled once, while they are kept.

    All methods may be called from any thread. `timeout` is in seconds; a compile that takes longer
    raises GrammarInterrupted, and so does one whose `cancel` (a CancelToken) is cancelled by another
    thread. Further keywords are those of GrammarSource.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | str | os.PathLike[str] | Any,
        *,
        max_threads: int = 0,
        cache_limit_bytes: int = 256 << 20,
        cache_folder: str | os.PathLike[str] = "",
    ) -> None:
        """tokenizer: a Tokenizer, the path of one, or one of transformers. max_threads: of batches;
        0 = as many as the machine has. cache_limit_bytes: of compiled grammars that are kept, with
        their masks. cache_folder: where what belongs to the tokenizer is kept for other processes,
        which makes large vocabularies quicker; "" = nowhere."""
        for name, value in (("max_threads", max_threads), ("cache_limit_bytes", cache_limit_bytes)):
            if value < 0:
                raise GrammarError(f"{name} is {value}; it must not be negative")
        if isinstance(tokenizer, (str, os.PathLike)):
            tokenizer = Tokenizer(tokenizer)
        elif not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer.from_huggingface(tokenizer)
        self.tokenizer: Tokenizer = tokenizer
        self._engine = tokenizer._make_engine(max_threads, cache_limit_bytes, os.fspath(cache_folder))

    @property
    def vocab_size(self) -> int:
        """Width of the model's logits."""
        return self._engine.vocab_size

    def compile(
        self,
        source: GrammarSource,
        *,
        timeout: float | None = None,
        cancel: CancelToken | None = None,
    ) -> CompiledGrammar:
        """Compiles a grammar in any notation. Raises GrammarError saying where and what."""
        return self._engine.compile(source, timeout, cancel)

    def compile_json_schema(
        self,
        schema: str | bool | Mapping[str, Any] | Any,
        *,
        timeout: float | None = None,
        cancel: CancelToken | None = None,
        **options: Any,
    ) -> CompiledGrammar:
        """schema: JSON text, a dict, or a class with model_json_schema (pydantic). Options: order
        ("schema", "any"), format ("assert", "annotate"), whitespace ("compact", "spaced", "any",
        "indent:N"), max_whitespace (int, with "any"), escapes ("minimal", "any"), registry (dict
        from URI to schema: JSON text, dict or bool), canonical, limits."""
        return self._compile("json_schema", _schema_text(schema), timeout, cancel, options)

    def compile_builtin_json_grammar(self, **options: Any) -> CompiledGrammar:
        """Any JSON value."""
        return self.compile_json_schema(True, **options)

    def compile_regex(
        self,
        pattern: str,
        *,
        timeout: float | None = None,
        cancel: CancelToken | None = None,
        **options: Any,
    ) -> CompiledGrammar:
        """A regular expression (ECMA-262) that matches whole texts."""
        return self._compile("regex", pattern, timeout, cancel, options)

    def compile_grammar(
        self,
        text: str,
        *,
        root_rule_name: str = "root",
        timeout: float | None = None,
        cancel: CancelToken | None = None,
        **options: Any,
    ) -> CompiledGrammar:
        """A context-free grammar in GBNF, llama.cpp's EBNF."""
        return self._compile("gbnf", text, timeout, cancel, {"start": root_rule_name, **options})

    def compile_lark(
        self,
        text: str,
        *,
        start: str = "start",
        timeout: float | None = None,
        cancel: CancelToken | None = None,
        **options: Any,
    ) -> CompiledGrammar:
        """A context-free grammar in Lark's notation."""
        return self._compile("lark", text, timeout, cancel, {"start": start, **options})

    def compile_choice(
        self,
        choices: Sequence[str],
        *,
        timeout: float | None = None,
        cancel: CancelToken | None = None,
        **options: Any,
    ) -> CompiledGrammar:
        """One of several texts."""
        return self._compile("choice", "", timeout, cancel, {"choices": choices, **options})

    def compile_structural_tag(
        self,
        tags: Sequence[Tag | Mapping[str, Any]],
        *,
        timeout: float | None = None,
        cancel: CancelToken | None = None,
        **options: Any,
    ) -> CompiledGrammar:
        """Free text in which each tag starts a grammar. A tag is a Tag, or a dict with begin, end
        and one of schema (as above) and grammar (a GrammarSource). The options of schemas (order,
        ..., registry, limits) are those of each `schema`; a GrammarSource brings its own."""
        check_keywords(options, (*KEYWORDS, "timeout", "cancel"))
        of_schemas = {name: options[name] for name in SCHEMA_KEYWORDS if name in options}
        made = [tag if isinstance(tag, Tag) else _tag(tag, of_schemas) for tag in tags]
        if any("schema" in tag for tag in tags if not isinstance(tag, Tag)):
            options.pop("max_whitespace", None)  # else it bounds nothing, and is refused
        return self._compile("trigger", "", timeout, cancel, {"tags": made, **options})

    def clear_cache(self) -> None:
        """Drops the compiled grammars that are kept; matchers keep theirs."""
        self._engine.clear_cache()

    def get_cache_size_bytes(self) -> int:
        """Of the compiled grammars that are kept."""
        return self._engine.cached_bytes

    def _compile(
        self,
        kind: str,
        text: str,
        timeout: float | None,
        cancel: CancelToken | None,
        options: Mapping[str, Any],
    ) -> CompiledGrammar:
        check_keywords(options, (*KEYWORDS, "timeout", "cancel"))
        return self._engine.compile(GrammarSource(kind, text, **options), timeout, cancel)


def _schema_text(schema: str | bool | Mapping[str, Any] | Any) -> str:
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    return schema if isinstance(schema, str) else json.dumps(schema)


def _tag(tag: Mapping[str, Any], options: Mapping[str, Any]) -> Tag:
    if not isinstance(tag, Mapping):
        raise GrammarError(f"a tag is of type {type(tag).__name__}; give a list of Tag or dict")
    rest = dict(tag)
    begin, end = rest.pop("begin", None), rest.pop("end", "")
    schema, grammar = rest.pop("schema", None), rest.pop("grammar", None)
    if begin is None or rest or (schema is None) == (grammar is None):
        raise GrammarError(
            f"a tag has begin, end and one of schema and grammar, not {sorted(tag)}"
        )
    if grammar is None:
        grammar = GrammarSource("json_schema", _schema_text(schema), **options)
    return Tag(begin, grammar, end)
