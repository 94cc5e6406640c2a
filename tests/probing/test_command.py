"""`gb probe --check` on the engine of a third party, as its author runs it: a fact that does not hold is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLUGIN = """
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.plugins import hookimpl

@hookimpl
def grammar_backends_register_backends():
    kinds = frozenset({GrammarKind.CHOICE, GrammarKind.JSON_SCHEMA})
    capabilities = Capabilities(kinds=kinds, support="wordlist:support.json")
    return [BackendSpec("wordlist", "wordlist.engine:WordListEngine", API_VERSION, capabilities, priority=None)]
"""
ENGINE = """
import json

from grammar_backends.contract import GrammarKind, pack_ids
from grammar_backends.errors import UnsupportedFeature


def words_of(spec):
    if spec.kind is GrammarKind.CHOICE:
        return [text.encode() for text in spec.value]
    schema = spec.value
    if schema in ({"type": "boolean"}, {"type": "null"}):
        return [b"true", b"false"] if schema["type"] == "boolean" else [b"null"]
    members = schema.get("enum") if isinstance(schema, dict) and schema.keys() == {"enum"} else None
    if members is None or len(members) > 9 or any(isinstance(member, (dict, list, float)) for member in members):
        raise UnsupportedFeature("json_schema: only short lists of texts, whole numbers and words")
    return [json.dumps(member, ensure_ascii=False).encode() for member in members]


class WordListEngine:
    version = "1.0"

    def __init__(self, vocabulary, options):
        self.vocabulary = vocabulary

    def compile(self, spec):
        return WordList(self.vocabulary, words_of(spec))


class WordList:
    def __init__(self, vocabulary, words):
        self.vocabulary, self.words = vocabulary, words

    def new_matcher(self):
        return WordMatcher(self, [b""])


class WordMatcher:
    def __init__(self, words, texts):
        self.words, self.texts = words, texts

    def is_prefix(self, text):
        return any(word.startswith(text) for word in self.words.words)

    def consume(self, tokens):
        for count, token in enumerate(tokens):
            piece = self.words.vocabulary.text_tokens[token]
            if not piece or not self.is_prefix(self.texts[-1] + piece):
                return count
            self.texts.append(self.texts[-1] + piece)
        return len(tokens)

    def rollback(self, num_tokens):
        del self.texts[len(self.texts) - num_tokens :]

    def fill_row(self, row):
        tokens, text = self.words.vocabulary.text_tokens, self.texts[-1]
        legal = [id_ for id_, piece in enumerate(tokens) if piece and self.is_prefix(text + piece)]
        row.array[:] = pack_ids(legal, self.words.vocabulary.width)

    def is_accepting(self):
        return self.texts[-1] in self.words.words

    def fork(self):
        return WordMatcher(self.words, self.texts.copy())
"""


DATA = """{
  "engine": "wordlist",
  "measured": "1.0",
  "versions": "==1.0",
  "types": {"any": [], "string": [], "integer": [], "number": [], "array": [], "object": []},
  "combinators": {"enum": []},
  "formats": [],
  "unknown_formats": false,
  "noops": [],
  "checks": {"closed-shapes": {}, "enum-containers": {}, "enum-numbers": {}}
}
"""


def install(folder: Path, data: str) -> None:
    info = folder / "wordlist-1.0.dist-info"
    for path in (folder / "wordlist", info):
        path.mkdir()
    (folder / "wordlist" / "__init__.py").write_text(PLUGIN)
    (folder / "wordlist" / "engine.py").write_text(ENGINE)
    (folder / "wordlist" / "support.json").write_text(data)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wordlist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grammar_backends]\nwordlist = wordlist\n")


def test_c3_one_fact_that_does_not_hold_is_a_failure_that_names_it_and_no_other(tmp_path: Path) -> None:
    install(tmp_path, DATA.replace('"integer": []', '"integer": ["minimum"]'))
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "grammar_backends.cli", "probe", "wordlist", "--check", "--format", "table"]
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    types = next(line for line in DATA.splitlines() if '"types"' in line)
    changes = [line for line in done.stdout.splitlines() if line.startswith(("+ ", "- "))]
    assert changes == ["-" + types.replace('"integer": []', '"integer": ["minimum"]'), "+" + types]
