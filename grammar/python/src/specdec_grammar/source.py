"""Grammars as they are given, with their keywords checked."""

from __future__ import annotations

import difflib
import json
from typing import Any, Iterable, Mapping

from . import _engine
from ._engine import GrammarError

_TEXTS = ("name", "start", "order", "format", "whitespace", "escapes")
KEYWORDS = (*_TEXTS, "max_whitespace", "choices", "tags", "registry", "canonical", "limits")
SCHEMA_KEYWORDS = (
    "order",
    "format",
    "whitespace",
    "max_whitespace",
    "escapes",
    "registry",
    "limits",
)


class GrammarSource(_engine.GrammarSource):
    """A grammar as it is given, in any notation.

    kind: one of grammar_kinds(). text: of the grammar; a choice and tags have none. Keywords:
    name (stands in front of errors), start (rule of GBNF and Lark), choices (list of str), tags
    (list of Tag), canonical (bool), limits (dict from name to int), and for JSON schemas order
    ("schema", "any"), format ("assert", "annotate"), whitespace ("compact", "spaced", "any",
    "indent:N"), max_whitespace (int; with whitespace "any", the most characters between two
    tokens; by default one line break and 16 others; an error where it bounds nothing), escapes
    ("minimal", the default: only what JSON requires; "any"), registry (dict from URI to schema).
    """

    def __init__(self, kind: str, text: str = "", **options: Any) -> None:
        check_keywords(options, KEYWORDS)
        for name, value in {"kind": kind, "text": text, **options}.items():
            if name in ("kind", "text", *_TEXTS) and not isinstance(value, str):
                raise TypeError(f"{name} is of type {type(value).__name__}; give a str")
        if "choices" in options:
            options["choices"] = _choices(options["choices"])
        if "registry" in options:
            options["registry"] = _registry(options["registry"])
        if "limits" in options:
            options["limits"] = _limits(options["limits"])
        super().__init__(kind, text, **options)


def check_keywords(options: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError for the first of the options that is not known."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'? Known" if near else "known"
            raise TypeError(f"there is no keyword '{name}'; {hint}: {', '.join(sorted(known))}")


def _choices(choices: Any) -> list[str]:
    if isinstance(choices, (str, bytes)) or not isinstance(choices, Iterable):
        raise GrammarError(f'choices is {choices!r}; give a list of texts: ["yes", "no"]')
    texts = list(choices)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise GrammarError(f"choice {i} is of type {type(text).__name__}; each must be a str")
    return texts


def _registry(registry: Any) -> dict[str, str]:
    form = "give a dict from URI to schema (JSON text, dict or bool)"
    if not isinstance(registry, Mapping):
        raise GrammarError(f"registry is of type {type(registry).__name__}; {form}")
    documents = {}
    for uri, schema in registry.items():
        if not isinstance(uri, str) or not isinstance(schema, (str, Mapping, bool)):
            raise GrammarError(
                f"registry has {uri!r} of type {type(uri).__name__} with a value of type "
                f"{type(schema).__name__}; {form}"
            )
        documents[uri] = schema if isinstance(schema, str) else json.dumps(schema)
    return documents


def _limits(limits: Any) -> dict[str, int]:
    if not isinstance(limits, Mapping):
        kind = type(limits).__name__
        raise GrammarError(f"limits is of type {kind}; give a dict from name to int")
    for name, value in limits.items():
        if not isinstance(name, str) or not isinstance(value, int) or not 0 <= value < 1 << 64:
            raise GrammarError(f"limit {name!r} is {value!r}; give an int from 0 to 2**64 - 1")
    return dict(limits)
