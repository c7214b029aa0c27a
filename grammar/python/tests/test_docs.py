"""The quick start of docs/python.md runs as it stands there."""

import ast
import json
import re

import pytest
from support import ROOT


def test_quick_start(capsys, monkeypatch):
    pytest.importorskip("numpy")
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
    assert code.count("\n") <= 15
    monkeypatch.chdir(ROOT)
    exec(compile(code, "docs/python.md", "exec"), {})
    text = b"".join(ast.literal_eval(line) for line in capsys.readouterr().out.splitlines())
    assert set(json.loads(text)) <= {"a", "b"}


def test_every_name_is_documented():
    import specdec_grammar as sg

    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    missing = [name for name in sg.__all__ if name not in page and name != "grammar_kinds"]
    assert not missing
    verbs = [name for name in dir(sg.GrammarMatcher) if not name.startswith("_")]
    assert not [name for name in verbs if f"`{name}" not in page]
    assert all((getattr(sg.GrammarMatcher, name).__doc__ or "") for name in verbs)
