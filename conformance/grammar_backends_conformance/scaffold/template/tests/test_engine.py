"""What this engine is for: examples of its own, beside the laws that every backend keeps."""

from __future__ import annotations

import pytest

import toy_backend
from grammar_backends import GrammarSpec, PluginHost, load_backend, load_vocabulary
from grammar_backends.contract import GrammarBackend
from grammar_backends.errors import SpecError, UnsupportedFeature


@pytest.fixture(scope="module")
def backend() -> GrammarBackend:
    # Installed, the plugin is found without this host. Given by hand, the tests run without an installation too.
    host = PluginHost(autoload=False, plugins={"toy": toy_backend})
    return load_backend("toy", load_vocabulary("byte"), host=host)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("[a-c]+x?", "abcx", True),
        ("[a-c]+x?", "xa", False),
        ("(ab){2,3}", "ab", False),
        ("(ab){2,3}", "ababab", True),
        ("[^é]{2}", "日\U0001f600", True),
        ("[^é]{2}", "aé", False),
        ("", "", True),
    ],
)
def test_patterns(backend: GrammarBackend, pattern: str, text: str, matches: bool) -> None:
    grammar = backend.compile_grammar(GrammarSpec.regex(pattern)).new_grammar()
    assert (grammar.accept_tokens("test", list(text.encode())) and grammar.is_accepting()) == matches


def test_a_choice_may_be_the_beginning_of_another(backend: GrammarBackend) -> None:
    grammar = backend.compile_grammar(GrammarSpec.choice(["yes", "yes please"])).new_grammar()
    assert grammar.accept_tokens("test", list(b"yes"))
    assert grammar.is_accepting()
    assert grammar.accept_tokens("test", list(b" please"))
    assert grammar.is_accepting()


def test_what_is_wrong_and_what_is_not_enforced_are_told_apart(backend: GrammarBackend) -> None:
    with pytest.raises(SpecError) as wrong:
        backend.compile_grammar(GrammarSpec.regex("(a"))
    assert not isinstance(wrong.value, UnsupportedFeature)
    for spec in (GrammarSpec.regex("a{30000}"), GrammarSpec.regex("(?=a)a"), GrammarSpec.json_schema({})):
        with pytest.raises(UnsupportedFeature):
            backend.compile_grammar(spec)
