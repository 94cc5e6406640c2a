"""The oracles against truths of other origin: Python's engine, hand-made languages, and brute force."""

from __future__ import annotations

import itertools
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar_backends import GrammarSpec, Vocabulary
from grammar_backends_conformance.oracles import Recogniser, State, allowed_ids, recogniser_of, regex_fullmatch
from grammar_backends_conformance.oracles.grammars import ebnf_grammar, lark_grammar
from grammar_backends_conformance.oracles.patterns import Uncovered
from grammar_backends_conformance.oracles.reference import (
    EMPTY,
    NOTHING,
    Alternatives,
    Grammar,
    Repetition,
    Rule,
    Series,
    Term,
    characters,
    literal,
)


def texts_of(recogniser: Recogniser, alphabet: bytes, longest: int) -> set[bytes]:
    """All texts of the language over an alphabet, up to a length."""
    words = (bytes(word) for n in range(longest + 1) for word in itertools.product(alphabet, repeat=n))
    return {word for word in words if recogniser.accepts(word)}


def recogniser(text: str) -> Recogniser:
    return Recogniser(ebnf_grammar(text))


# ------------------------------------------------------------------------------------------------ regular languages

ALPHABET = "ab0é😀\n"


def patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(
        [
            "a",
            "b",
            "é",
            "😀",
            ".",
            r"\d",
            r"\w",
            r"\S",
            r"\D",
            "[ab]",
            "[^a]",
            "[^é😀]",
            "[a-é]",
            r"[\d\n]",
            "()",
            r"\n",
        ]
    )
    counts = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{,1}", "{1,3}?", "{0}"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
            st.tuples(inner, counts).map(lambda pair: f"({pair[0]}){pair[1]}"),
        ),
        max_leaves=8,
    )


@settings(max_examples=300, deadline=None)
@given(patterns(), st.lists(st.text(ALPHABET, max_size=6), min_size=1, max_size=8))
def test_a_regex_is_recognised_as_python_matches_it(pattern: str, texts: list[str]) -> None:
    found = recogniser_of(GrammarSpec.regex(pattern))
    assert found is not None
    for text in texts:
        expected = re.fullmatch(pattern, text, re.ASCII) is not None
        assert found.accepts(text) == expected
        assert regex_fullmatch(pattern, text) == expected


@settings(max_examples=60, deadline=None)
@given(patterns())
def test_a_regex_has_few_states_and_every_one_of_them_leads_to_a_text(pattern: str) -> None:
    found = recogniser_of(GrammarSpec.regex(pattern))
    assert found is not None
    edges: dict[State, set[State]] = {}
    todo = [] if found.is_empty else [found.start()]
    while todo:
        state = todo.pop()
        if state in edges:
            continue
        assert len(edges) < 2_000
        edges[state] = {following for byte in range(256) if (following := state.step(byte)) is not None}
        todo.extend(edges[state])
    useful = {state for state in edges if state.accepting}
    while more := {state for state in edges if state not in useful and edges[state] & useful}:
        useful |= more
    assert useful == set(edges)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (r"\p{Lu}\p{Ll}+", ["Éa", "Ωmega"], ["éa", "E", "E1"]),
        (r"[\p{Nd}_]+", ["1_2", "\u0663"], ["a"]),
        (r"\P{L}", ["1", "😀"], ["é"]),
        (r"\pL", ["é"], ["1"]),
        (r"\u{1F600}\x{41}\u00e9\ud83d\ude00", ["😀Aé😀"], ["😀Aé"]),
        (r"\cA\e\0", ["\x01\x1b\x00"], ["cAe0"]),
        (r"^\Aa\z$", ["a"], ["a\n", "za"]),
        (r"(?<n>a)(?P<m>b)", ["ab"], ["a"]),
        (r"[[&|~]+", ["[&|~"], ["a"]),
        (r"^a$|^b$", ["a", "b"], ["ab", "a\n"]),
        (r"a{,2}{", ["{", "aa{"], ["aaa{"]),
        (r"\/", ["/"], ["\\/"]),
    ],
)
def test_what_the_dialect_has_beyond_python_is_read(pattern: str, inside: list[str], outside: list[str]) -> None:
    found = recogniser_of(GrammarSpec.regex(pattern))
    assert found is not None
    for text in inside:
        assert (found.accepts(text), regex_fullmatch(pattern, text)) == (True, True)
    for text in outside:
        assert (found.accepts(text), regex_fullmatch(pattern, text)) == (False, False)


@pytest.mark.parametrize("pattern", ["(?=a)a", r"(a)\1", r"\ba", "a^b", "(?>a)", r"\p{Greek}", "(", "(?i:a)"])
def test_what_the_oracle_does_not_cover_it_does_not_judge(pattern: str) -> None:
    assert recogniser_of(GrammarSpec.regex(pattern)) is None
    with pytest.raises(Uncovered):
        regex_fullmatch(pattern, "a")


@pytest.mark.parametrize(
    "ranges", [[(0, 0x10FFFF)], [(0x7F, 0x80)], [(0x7FE, 0x1_2345)], [(0xD700, 0xE001)], [(0x10FFFF,) * 2]]
)
def test_a_set_of_characters_is_exactly_their_encodings(ranges: list[tuple[int, int]]) -> None:
    found = Recogniser(Grammar(characters(ranges)))
    edges = {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}
    edges |= {edge + near for low, high in ranges for edge in (low, high) for near in (-1, 0, 1)}
    for code in sorted(edges | set(range(0, 0x110000, 911))):
        if 0 <= code <= sys.maxunicode and not 0xD800 <= code <= 0xDFFF:
            assert found.accepts(chr(code)) == any(low <= code <= high for low, high in ranges), hex(code)
    for wrong in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"\x80", b"\xe0\x80\x80"):
        assert not found.accepts(wrong)


# ------------------------------------------------------------------------------------------- context-free languages

BALANCED = {b"", b"()", b"()()", b"(())"}


@pytest.mark.parametrize(
    ("grammar", "alphabet", "longest", "texts"),
    [
        ('root ::= "" | root "(" root ")"', b"()", 5, BALANCED),
        ('root ::= "" | "(" root ")" root', b"()", 5, BALANCED),
        ('root ::= root root | "" | "(" root ")"', b"()", 5, BALANCED),
        ('root ::= "a" root "b" | ""', b"ab", 6, {b"", b"ab", b"aabb", b"aaabbb"}),
        ('root ::= "a" root "a" | "b" root "b" | "c"', b"abc", 4, {b"c", b"aca", b"bcb"}),
        (
            'root ::= x "c"\nx ::= y "a" | ""\ny ::= x "b" | root',
            b"abc",
            4,
            {b"c", b"bac", b"babac"[:4]} - {b"baba"} | {b"cac"},
        ),
        ('root ::= a b a\na ::= "" | "x"\nb ::= a | a a', b"x", 6, {b"", b"x", b"xx", b"xxx", b"xxxx"}),
        ("root ::= root", b"a", 2, set()),
        ('root ::= "a" | "b" dead\ndead ::= dead "c"', b"abc", 3, {b"a"}),
        ('root ::= ("a" | "b"){2,3}', b"ab", 2, {b"aa", b"ab", b"ba", b"bb"}),
        ('root ::= unit\nunit ::= root | "a"', b"a", 3, {b"a"}),
        ('root ::= e\ne ::= e "+" e | "1"', b"+1", 5, {b"1", b"1+1", b"1+1+1"}),
    ],
)
def test_a_context_free_language_has_the_texts_it_should_have(
    grammar: str, alphabet: bytes, longest: int, texts: set[bytes]
) -> None:
    assert texts_of(recogniser(grammar), alphabet, longest) == texts


def test_palindromes_of_even_length_need_the_whole_past() -> None:
    found = recogniser('root ::= "a" root "a" | "b" root "b" | ""')
    for word in ("".join(w) for n in range(9) for w in itertools.product("ab", repeat=n)):
        assert found.accepts(word) == (len(word) % 2 == 0 and word == word[::-1])


def test_the_empty_language_has_a_state_without_continuation() -> None:
    for term in (NOTHING, Series((literal("a"), NOTHING)), Rule("x")):
        found = Recogniser(Grammar(term, {"x": Series((literal("a"), Rule("x")))}))
        assert found.is_empty
        assert not found.start().accepting
        assert all(found.start().step(byte) is None for byte in range(256))


def test_the_language_of_the_empty_text_accepts_at_once_and_goes_nowhere() -> None:
    found = Recogniser(Grammar(EMPTY))
    assert found.start().accepting
    assert not found.is_empty
    assert all(found.start().step(byte) is None for byte in range(256))


def test_a_reference_to_a_missing_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule 'x'"):
        Recogniser(Grammar(Rule("x")))


def test_depth_costs_neither_recursion_nor_correctness() -> None:
    found = recogniser('root ::= "(" root ")" | ""')
    assert found.accepts("(" * 5_000 + ")" * 5_000)
    assert not found.accepts("(" * 5_000 + ")" * 4_999)


def test_right_recursion_has_as_few_states_as_left_recursion() -> None:
    for grammar in ('root ::= "a" root | ""', 'root ::= root "a" | ""', 'root ::= "a"*'):
        start = recogniser(grammar).start()
        assert start.walk(b"a" * 3) is start.walk(b"a" * 300)


# ------------------------------------------------------------------------------------------------------ random grammars

NAMES = ("r", "s", "t")


def terms() -> st.SearchStrategy[Term]:
    leaves = st.one_of(
        st.sampled_from([literal("a"), literal("b"), literal("ab"), EMPTY, NOTHING]), st.sampled_from(NAMES).map(Rule)
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda items: Series(tuple(items))),
            st.lists(inner, max_size=3).map(lambda options: Alternatives(tuple(options))),
            st.builds(Repetition, inner, st.integers(0, 2), st.sampled_from([None, 2, 3])),
        ),
        max_leaves=6,
    )


def derived(grammar: Grammar, longest: int) -> set[bytes]:
    """The texts of a language up to a length by the definition: the smallest sets that satisfy the rules."""
    known: dict[str, set[bytes]] = {name: set() for name in grammar.rules}

    def joined(left: set[bytes], right: set[bytes]) -> set[bytes]:
        return {a + b for a in left for b in right if len(a) + len(b) <= longest}

    def of(term: Term) -> set[bytes]:
        if isinstance(term, Rule):
            return known[term.name]
        if isinstance(term, Alternatives):
            return set().union(*map(of, term.options))
        if isinstance(term, Series):
            out = {b""}
            for item in term.items:
                out = joined(out, of(item))
            return out
        if isinstance(term, Repetition):
            item, power, out = of(term.item), {b""}, set[bytes]()
            for n in range((term.least + longest if term.most is None else term.most) + 1):
                out |= power if n >= term.least else set()
                power = joined(power, item)
            return out
        return {bytes((member,)) for member in term.members}

    changed = True
    while changed:
        found = {name: of(body) for name, body in grammar.rules.items()}
        changed = found != known
        known = found
    return of(grammar.start)


@settings(max_examples=300, deadline=None)
@given(st.tuples(terms(), terms(), terms()))
def test_a_random_grammar_is_recognised_as_its_rules_derive_it(bodies: tuple[Term, Term, Term]) -> None:
    longest = 5
    grammar = Grammar(Rule("r"), dict(zip(NAMES, bodies, strict=True)))
    found = Recogniser(grammar)
    texts = derived(grammar, longest)
    beginnings = {text[:end] for text in texts for end in range(len(text) + 1)}
    for word in (bytes(w) for n in range(longest + 1) for w in itertools.product(b"ab", repeat=n)):
        state = found.start().walk(word)
        assert (state is not None and state.accepting) == (word in texts), word
        if word in beginnings and word:
            assert state is not None, word
        if state is not None and word and word not in beginnings:
            assert leads_to_a_text(state), word


def leads_to_a_text(state: State, longest: int = 40) -> bool:
    """Whether some text follows, searched breadth first."""
    seen, layer = {state}, [state]
    for _ in range(longest):
        if any(reached.accepting for reached in layer):
            return True
        steps = (reached.step(byte) for reached in layer for byte in b"ab")
        layer = list({following for following in steps if following is not None} - seen)
        seen.update(layer)
    return False


# ------------------------------------------------------------------------------------------------- grammars as text


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ('start: A b?\nA: /x+/\nb: "y"i\n', ["x", "xxY"], ["", "y"]),
        (
            '?start: "a".."c" -> first\n  | [digit]~2..3 // up to three\n!digit.2: /[0-9]/\n',
            ["b", "", "123"],
            ["d", "1234"],
        ),
        ('start: /a.c/s "!" | /É/i', ["a\nc!", "é", "É"], ["ac!"]),
        ('start: ("a" | "b")+\n\n\n', ["ab", "a"], [""]),
    ],
)
def test_lark_is_read(text: str, inside: list[str], outside: list[str]) -> None:
    found = Recogniser(lark_grammar(text))
    assert [found.accepts(t) for t in inside] == [True] * len(inside)
    assert [found.accepts(t) for t in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (r'root ::= "\"\\\n" [^\]"\n]', ['"\\\nx'], ['"\\\n]', '"\\\n"']),
        ('root ::= [a-c-]{2,} . # end\nmore ::= "x"', ["a-é", "bb\n"], ["a-", "az!"]),
        (
            r'root ::= "\u00e9\x41\U0001F600" x\nx ::= [\u4e00-\u9fff]?'.replace(r"\nx", "\nx"),
            ["éA😀", "éA😀水"],
            ["éA"],
        ),
    ],
)
def test_ebnf_is_read(text: str, inside: list[str], outside: list[str]) -> None:
    found = recogniser(text)
    assert [found.accepts(t) for t in inside] == [True] * len(inside)
    assert [found.accepts(t) for t in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    "text",
    [
        'root ::= (= "a") "b"',
        'root ::= "a" ) ',
        'root ::= Tag("x")',
        "start: %json {}",
        'start: "a"\n%ignore " "',
        "root ::= missing",
    ],
)
def test_extensions_of_an_engine_are_not_judged(text: str) -> None:
    assert recogniser_of(GrammarSpec.grammar(text)) is None


def test_a_choice_is_exactly_its_texts() -> None:
    texts = ["", "a", "ab", 'q"\\\n\0', "é", "😀"]
    found = recogniser_of(GrammarSpec.choice(texts))
    assert found is not None
    assert [found.accepts(text) for text in texts] == [True] * len(texts)
    assert not found.accepts("abc")


# -------------------------------------------------------------------------------------------------------------- masks

LONGER = [b"aa", b"ab", b"aa", b"", b"\xc3\xa9", b"\xa9b", b"aab\xc3", b"</s>", b"a<s>"]
VOCABULARY = Vocabulary(
    [*(bytes((byte,)) for byte in range(256)), *LONGER],
    special_ids=[264],
    stop_ids=[263],
    width=320,
)


@settings(max_examples=60, deadline=None)
@given(patterns(), st.text(ALPHABET, max_size=4))
def test_allowed_ids_are_those_of_the_naive_loop(pattern: str, text: str) -> None:
    found = recogniser_of(GrammarSpec.regex(pattern))
    assert found is not None
    state = found.start().walk(text.encode())
    if state is None:
        state = found.start()
    naive = {
        id_
        for id_ in range(VOCABULARY.size)
        if id_ not in VOCABULARY.special_ids and state.walk(VOCABULARY.token_bytes(id_)) is not None
    }
    assert allowed_ids(state, VOCABULARY) == naive


def test_a_token_may_end_inside_a_character_and_start_there() -> None:
    found = recogniser_of(GrammarSpec.regex("aabé"))
    assert found is not None
    assert 262 in allowed_ids(found.start(), VOCABULARY)
    inside = found.start().walk(b"aab\xc3")
    assert inside is not None
    assert not inside.accepting
    assert allowed_ids(inside, VOCABULARY) == {0xA9}
