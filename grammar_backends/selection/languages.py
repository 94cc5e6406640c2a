"""The texts that patterns match as automata over characters: what several match, what none does, and a pattern for it.

Engines know no look-ahead, and no schema can say "what this pattern does not match". Both are said by another pattern,
which is found here: languages are combined state by state, and written as a pattern that every dialect reads alike.
Everything is bounded: where an answer would be too large, there is none.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from grammar_backends.contract.formats import FORMAT_PATTERNS, NARROW_FORMATS
from grammar_backends.contract.regex import (
    Alternatives,
    CharacterSet,
    Node,
    Ranges,
    RegexDialect,
    Repetition,
    Series,
    alternatives,
    complement,
    parse_pattern,
    render,
    repetition,
    series,
    union,
)
from grammar_backends.contract.spec import JSON, STANDARD_FORMATS
from grammar_backends.errors import SpecError
from grammar_backends.selection.keywords import ASSERTIONS, GROUPS
from grammar_backends.selection.patterns import alternatives_of, ends_escaped, has_anchors, share_prefixes, signs
from grammar_backends.selection.schema import STRING, declared

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "Language",
    "but",
    "common",
    "exact_strings_of",
    "exactly",
    "forbidden_texts",
    "have_none",
    "keywords_in",
    "keywords_of",
    "language_of",
    "looks_ahead",
    "may_overlap",
    "pattern_of",
    "patterns_in",
    "strings_of",
    "texts",
    "work_on",
]

MAX_STATES = 600
"""States of one automaton."""
MAX_MOVES = 8_000
"""Ranges of characters that are looked at for one automaton, of some microseconds each."""
MAX_STEPS = 20_000
"""Parts of trees that are looked at for one automaton."""
MAX_PARTS = 2_000
"""Parts of a tree that is read, ranges of its characters among them."""
MAX_PATTERN = 400
"""Characters of a pattern, or of texts, that are read."""
MAX_TEXTS = 400
"""Texts of a pattern that are listed."""
MAX_LANGUAGES = 16
"""Languages that are combined at once."""
MAX_DEPTH = 60
"""Levels of a pattern that is read or written."""
MAX_WRITTEN = 20_000
"""Characters of a pattern that is written, by estimate."""
LONG = 300
"""Characters of a pattern for which a shorter one is looked for."""

_ANY: Ranges = complement(())
_ANYTHING: Node = Repetition(CharacterSet(_ANY), 0, None)
_EMPTY: Node = Series(())
_PLAIN = RegexDialect("every dialect", escape="{:c}", negate=True, anything=r"[\s\S]")

_Signature: TypeAlias = "frozenset[tuple[int, Ranges]]"
_State = TypeVar("_State", bound=Hashable)
_Key = TypeVar("_Key", bound=Hashable)


class _TooLarge(Exception):
    """An automaton or a pattern is beyond the bounds."""


@dataclass(frozen=True, slots=True)
class Language:
    """A set of texts as an automaton. What this module returns is the smallest: equal when the texts are the same.

    Attributes:
        moves: by state, the characters that lead on and where to, each character at most once; 0 is the start.
        accepting: the states at which a text may end.
    """

    moves: tuple[tuple[tuple[Ranges, int], ...], ...]
    accepting: frozenset[int]

    @property
    def is_empty(self) -> bool:
        """Whether there is no text in it."""
        return not self.accepting


NOTHING = Language(((),), frozenset())
"""No text at all."""
EVERYTHING = Language((((_ANY, 0),),), frozenset((0,)))
"""Every text."""
_NO_MORE = Language(((),), frozenset((0,)))
"""The empty text."""


@functools.lru_cache(maxsize=256)
def language_of(pattern: str, wide: bool) -> Language | None:
    """The strings in which a pattern of a schema finds something; None where that cannot be told.

    Args:
        pattern: in the dialect of the layer, with look-ahead outside of groups.
        wide: as `parse_pattern` takes it: whether to err, where dialects differ, towards more strings or fewer.
    """
    if len(pattern) > MAX_PATTERN:
        return None
    try:
        return _smallest(_union([_part(part, wide) for part in alternatives_of(pattern)]))
    except (SpecError, _TooLarge):
        return None


def work_on(*patterns: str) -> int:
    """What finding the languages of patterns costs, in the steps of a `Comparison`."""
    counts = (int(count) for pattern in patterns for count in re.findall("(?<=[{,])[0-9]{1,4}", pattern))
    return 10 * (sum(map(len, patterns)) + 2 * sum(counts))


def patterns_in(schema: JSON) -> list[str]:
    """The patterns that `strings_of` a schema reads."""
    return [value for keyword, value in keywords_in(schema) if keyword == "pattern"]


def keywords_in(schema: JSON) -> Iterator[tuple[str, JSON]]:
    """The keywords that `strings_of` a schema reads, those of the schemas in it too."""
    for keyword, value in schema.items() if isinstance(schema, dict) else ():
        yield keyword, value
        for below in value if keyword in ("allOf", "anyOf") else (value,) if keyword == "not" else ():
            yield from keywords_in(below)


def looks_ahead(pattern: str) -> bool:
    """Whether there is look-ahead in a pattern."""
    return any(pattern.startswith(("(?=", "(?!"), at) for at, sign in signs(pattern) if sign == "(")


def forbidden_texts(pattern: str) -> tuple[list[str], str] | None:
    r"""What `^(?!(?:if|else)$)\w+$` forbids, as a list of whole texts, and the rest, `^\w+$`; None for other patterns.

    All dialects agree on both.
    """
    if not pattern.startswith("^(?!") or len(alternatives_of(pattern)) > 1:
        return None
    _, look, *rest = _pieces(pattern[1:])
    options = alternatives_of(look[3:-1])
    if any(not option.endswith("$") or ends_escaped(option) for option in options):
        return None
    try:
        found = [text for option in options for text in _texts_of(_parsed(option[:-1], wide=False))]
    except (SpecError, _TooLarge):
        return None
    return list(dict.fromkeys(found)), f"^{''.join(rest)}"


def exactly(pattern: str) -> Language | None:
    """`language_of` a pattern of which all dialects make the same; None for another one."""
    language = language_of(pattern, False)
    return language if language == language_of(pattern, True) else None


def strings_of(schema: JSON, wide: bool) -> Language | None:
    """The strings that are valid under a schema without references; None where that cannot be told.

    Args:
        schema: a subschema, an object or a boolean.
        wide: as in `language_of`.
    """
    return _bounded(lambda: _smallest(_strings(schema, wide)))


def exact_strings_of(schema: JSON) -> Language | None:
    """`strings_of` a schema of which all dialects make the same; None for another one."""
    language = strings_of(schema, wide=False)
    return language if language == strings_of(schema, wide=True) else None


def but(language: Language, others: Sequence[Language]) -> Language | None:
    """The texts of a language that are in none of some others; None where that is too large."""
    return _bounded(lambda: _smallest(_combined([language, *others], _first_alone)))


def common(languages: Sequence[Language]) -> Language | None:
    """The texts that are in each of some languages; None where that is too large."""
    return _bounded(lambda: _smallest(_combined(languages, all)))


def keywords_of(schema: JSON, language: Language | None = None) -> dict[str, JSON] | None:
    """`pattern`, perhaps with `minLength` and `maxLength`, for the strings of a schema as `strings_of` reads it.

    None where that cannot be told, where it would be too large, and where there are no such strings. A count in a
    pattern multiplies with all else that it says: what says the same of texts of any length is often far shorter.

    Args:
        schema: as `strings_of` takes it.
        language: its strings in every dialect, where they are known already.
    """
    language = language or strings_of(schema, wide=False)
    if language is None or language.is_empty:
        return None
    whole = pattern_of(language)
    if whole is not None and len(whole) < LONG:
        return {"pattern": whole}
    shortest, longest = _lengths(language)
    loose = strings_of(_uncounted(schema), wide=False)
    lengths = strings_of({"minLength": shortest} | ({} if longest is None else {"maxLength": longest}), wide=False)
    if loose is None or lengths is None or common([loose, lengths]) != language:
        return None if whole is None else {"pattern": whole}
    pattern = pattern_of(loose)
    if pattern is None or (whole is not None and len(whole) < len(pattern)):
        return None if whole is None else {"pattern": whole}
    most = {} if longest is None else {"maxLength": longest}
    return {"pattern": pattern, **({"minLength": shortest} if shortest else {}), **most}


def may_overlap(patterns: Sequence[str]) -> bool:
    """False when it is certain that no string is found by two of some patterns."""
    if not share_prefixes(patterns):
        return False
    languages = [language_of(pattern, wide=True) for pattern in patterns]
    known = [language for language in languages if language is not None]
    if len(known) < len(languages):
        return True
    return any((shared := common(pair)) is None or not shared.is_empty for pair in itertools.combinations(known, 2))


def have_none(patterns: Sequence[str]) -> bool:
    """True when it is certain that no string is found by all of some patterns."""
    languages = [language_of(pattern, wide=True) for pattern in patterns]
    shared = common([language for language in languages if language is not None])
    return shared is not None and shared.is_empty


def texts(members: Iterable[str]) -> Language | None:
    """Just these texts; None where that is too large."""
    return _bounded(lambda: _smallest(_listed(members)))


def pattern_of(language: Language) -> str | None:
    """A pattern for a language that has texts, read alike by every dialect; None where it would be too large."""
    tree = _bounded(lambda: _tree(language))
    if tree is None:
        return None
    text = "".join(map(_written, render(tree, _PLAIN)))
    depths = itertools.accumulate({"(": 1, ")": -1}.get(sign, 0) for _, sign in signs(text))
    if max(depths, default=0) > MAX_DEPTH:
        return None
    return f"^(?:{text})$" if isinstance(tree, Alternatives) else f"^{text}$"


def _written(character: str) -> str:
    """The dialects have no escape in common for what is beyond four digits: it stands for itself."""
    return character if character.isprintable() or ord(character) > 0xFFFF else f"\\u{ord(character):04X}"


def _bounded(answer: Callable[[], _Key]) -> _Key | None:
    try:
        return answer()
    except _TooLarge:
        return None


# -- reading -------------------------------------------------------------------------------------------------


def _part(part: str, wide: bool) -> Language:
    """One alternative of a pattern, which may begin and end anywhere in a string unless anchors say otherwise."""
    starts = part.startswith("^")
    ends = part.endswith("$") and not ends_escaped(part)
    pieces = _pieces(part[starts : len(part) - ends])
    language = _tempered(pieces[-1], wide) if ends else None
    if language is None:
        language = _after(_parsed(pieces[-1], wide), _NO_MORE if ends else EVERYTHING)
    for before, look in zip(pieces[-3::-2], pieces[-2::-2], strict=True):
        negative = look.startswith("(?!")
        ahead = _union([_part(f"^{option}", wide != negative) for option in alternatives_of(look[3:-1])])
        language = _combined([language, ahead], _first_alone if negative else all)
        if before:
            language = _after(_parsed(before, wide), language)
    return language if starts else _after(_ANYTHING, language)


def _tempered(text: str, wide: bool) -> Language | None:
    """Text up to the end of a string by characters at which something does not begin: `((?!ab).)*`; None for other.

    Nothing that has a character begins at any of them just if there is none of it anywhere.
    """
    found = _TEMPERED.search(text)
    if found is None:
        return None
    if has_anchors(found[1]):
        raise _TooLarge
    excluded = _union([_part(option, not wide) for option in alternatives_of(found[1])])
    if 0 in excluded.accepting:
        raise _TooLarge
    characters = _language(_parsed(found[2] + found[3], wide))
    language = _combined([characters, excluded], _first_alone)
    return _after(_parsed(text[: found.start()], wide), language) if found.start() else language


_TEMPERED = re.compile(
    r"\((?:\?:)?\(\?!(.+)\)(\.|\\[dDwWsS]|\[\^?\]?(?:\\.|[^\]\\])*\])\)([*+]|\{\d+(?:,\d*)?\})$", re.DOTALL
)


def _first_alone(inside: Sequence[bool]) -> bool:
    return inside[0] and not any(inside[1:])


def _pieces(part: str) -> list[str]:
    """A part of a pattern, split before and after each look-ahead that is in no group."""
    depth, cuts, opened = 0, [0], -1
    for at, sign in signs(part):
        if sign == "(":
            if not depth and part.startswith(("(?=", "(?!"), at):
                opened = at
            depth += 1
        elif sign == ")":
            depth -= 1
            if not depth and opened >= 0:
                cuts += [opened, at + 1]
                opened = -1
    return [part[start:end] for start, end in itertools.pairwise([*cuts, len(part)])]


def _parsed(text: str, wide: bool) -> Node:
    if has_anchors(text):
        raise _TooLarge  # what an anchor inside of a pattern means depends on what is around it
    tree = parse_pattern(text, wide=wide)
    if _size(tree) > MAX_PARTS:
        raise _TooLarge
    return tree


def _texts_of(tree: Node) -> list[str]:
    """The texts that a tree matches, where they are few and no dialect reads one of its sets in another way."""
    if isinstance(tree, CharacterSet):
        if any(high - low > 1 or 0xD800 <= high <= 0xDFFF for low, high in tree.ranges):
            raise _TooLarge
        return [chr(code) for low, high in tree.ranges for code in range(low, high + 1)]
    if isinstance(tree, Alternatives):
        found = [text for option in tree.options for text in _texts_of(option)]
    elif isinstance(tree, Series):
        found = [""]
        for item in tree.items:
            found = _joined(found, _texts_of(item))
    elif tree.most is None or tree.most > MAX_TEXTS:
        raise _TooLarge
    else:
        again = found = [""]
        for count in range(1, tree.most + 1):
            again = _joined(again, _texts_of(tree.item))
            found = [*found, *again] if count > tree.least else again
    if len(found) > MAX_TEXTS:
        raise _TooLarge
    return found


def _joined(heads: Sequence[str], tails: Sequence[str]) -> list[str]:
    if len(heads) * len(tails) > MAX_TEXTS:
        raise _TooLarge
    return [head + tail for head in heads for tail in tails]


def _strings(schema: JSON, wide: bool) -> Language:
    if isinstance(schema, bool):
        return EVERYTHING if schema else NOTHING
    if not declared(schema) & STRING:
        return NOTHING
    found = [EVERYTHING]
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if most is not None and most < least:
        return NOTHING
    if least or most is not None:
        found.append(_language(repetition(CharacterSet(_ANY), int(least), None if most is None else int(most))))
    for keyword in schema:
        if keyword in ASSERTIONS - _COUNTED and GROUPS.get(keyword, "string") == "string":
            read = _READERS.get(keyword)
            if read is None:
                raise _TooLarge
            found.append(read(schema[keyword], wide))
    return _combined(found, all)


def _read_pattern(pattern: str, wide: bool) -> Language:
    language = language_of(pattern, wide)
    if language is None:
        raise _TooLarge
    return language


def _read_format(name: str, wide: bool) -> Language:
    if name not in STANDARD_FORMATS:
        return EVERYTHING
    if name not in FORMAT_PATTERNS or (wide and name in NARROW_FORMATS):
        raise _TooLarge
    return _read_pattern(FORMAT_PATTERNS[name], wide)


_COUNTED = frozenset(("maxLength", "minLength", "type"))
_READERS: Mapping[str, Callable[[JSON, bool], Language]] = {
    "allOf": lambda schemas, wide: _combined([EVERYTHING, *(_strings(schema, wide) for schema in schemas)], all),
    "anyOf": lambda schemas, wide: _combined([NOTHING, *(_strings(schema, wide) for schema in schemas)], any),
    "const": lambda member, wide: _listed([member]),
    "enum": lambda members, wide: _listed(members),
    "format": _read_format,
    "not": lambda schema, wide: _combined([EVERYTHING, _strings(schema, not wide)], _first_alone),
    "pattern": _read_pattern,
}
"""What the keywords that are about strings say."""


def _uncounted(schema: JSON) -> JSON:
    """A schema without lengths, and without the counts in its patterns that leave a choice."""
    if isinstance(schema, list):
        return [_uncounted(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        keyword: _COUNT.sub(lambda found: "*" if found[1] else found[0], value)
        if keyword == "pattern"
        else _uncounted(value)
        if keyword in ("allOf", "anyOf", "not")
        else value
        for keyword, value in schema.items()
        if keyword not in ("minLength", "maxLength")
    }


_COUNT = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\{\d*,\d*\})", re.DOTALL)
"""A count with two ends; what comes before it holds none."""


def _lengths(language: Language) -> tuple[int, int | None]:
    """The length of the shortest text in a language, and of the longest one; None where there is no longest."""
    reached, length, shortest, longest = {0}, 0, -1, 0
    while reached:
        if not reached.isdisjoint(language.accepting):
            shortest, longest = length if shortest < 0 else shortest, length
        if length > len(language.moves):
            return shortest, None
        reached = {target for state in reached for _, target in language.moves[state]}
        length += 1
    return shortest, longest


# -- automata ------------------------------------------------------------------------------------------------


def _language(tree: Node) -> Language:
    """The texts that a tree matches as a whole."""
    return _after(tree, _NO_MORE)


def _after(tree: Node, language: Language) -> Language:
    """A text that a tree matches, and then one of a language.

    A state is what may still follow: trees, where the tree has not matched yet, and states of the language.
    """
    left = MAX_STEPS

    def moves_of(state: frozenset[Node | int]) -> Iterator[tuple[Ranges, frozenset[Node | int]]]:
        nonlocal left
        moves: list[tuple[Ranges, Node | int]] = []
        for item in state:
            if isinstance(item, int):
                moves += language.moves[item]
                continue
            for ranges, after in _derived(item):
                left -= len(ranges) + _size(after)
                moves += ((ranges, target) for target in reached(after))
            if left < 0:
                raise _TooLarge
        return _apart(moves)

    def reached(after: Node) -> tuple[Node | int, ...]:
        return (0,) if after == _EMPTY else (after, 0) if _is_nullable(after) else (after,)

    return _explored(frozenset(reached(tree)), moves_of, lambda state: not state.isdisjoint(language.accepting))


def _size(tree: Node) -> int:
    """Its parts, ranges of characters among them."""
    if isinstance(tree, CharacterSet):
        return len(tree.ranges)
    return 1 + sum(map(_size, _below(tree)))


def _below(node: Node) -> Sequence[Node]:
    if isinstance(node, Repetition):
        return (node.item,)
    return node.items if isinstance(node, Series) else node.options if isinstance(node, Alternatives) else ()


@functools.lru_cache(maxsize=4096)
def _is_nullable(node: Node) -> bool:
    if isinstance(node, Series):
        return all(map(_is_nullable, node.items))
    if isinstance(node, Alternatives):
        return any(map(_is_nullable, node.options))
    return isinstance(node, Repetition) and (not node.least or _is_nullable(node.item))


@functools.lru_cache(maxsize=4096)
def _derived(node: Node, depth: int = 0) -> tuple[tuple[Ranges, Node], ...]:
    """What follows the first character, by that character."""
    if depth > MAX_DEPTH:
        raise _TooLarge
    if isinstance(node, CharacterSet):
        return ((node.ranges, _EMPTY),)
    if isinstance(node, Alternatives):
        return tuple(move for option in node.options for move in _derived(option, depth + 1))
    if isinstance(node, Repetition):
        least = 0 if _is_nullable(node.item) else max(node.least - 1, 0)
        again = repetition(node.item, least, None if node.most is None else node.most - 1)
        return tuple((ranges, series((after, again))) for ranges, after in _derived(node.item, depth + 1))
    found: list[tuple[Ranges, Node]] = []
    for at, item in enumerate(node.items):
        others = node.items[at + 1 :]
        found += ((ranges, series((after, *others))) for ranges, after in _derived(item, depth + 1))
        if not _is_nullable(item):
            break
    return tuple(found)


def _listed(members: Iterable[JSON]) -> Language:
    listed = [member for member in members if isinstance(member, str)]
    if sum(map(len, listed)) > MAX_PATTERN or any("\ud800" <= letter <= "\udfff" for text in listed for letter in text):
        raise _TooLarge
    return _language(alternatives(series(CharacterSet(((ord(c), ord(c)),)) for c in text) for text in listed))


def _union(languages: Sequence[Language]) -> Language:
    return languages[0] if len(languages) == 1 else _combined(languages, any)


def _combined(languages: Sequence[Language], accepts: Callable[[Sequence[bool]], bool]) -> Language:
    """The texts whose memberships in some languages are accepted. A state has one of each, or None after a way out."""

    def moves_of(state: tuple[int | None, ...]) -> Iterator[tuple[Ranges, tuple[int | None, ...]]]:
        moves: list[tuple[Ranges, tuple[int, int] | None]] = [(_ANY, None)]
        for which, at in enumerate(state):
            if at is not None:
                moves += ((ranges, (which, target)) for ranges, target in languages[which].moves[at])
        for ranges, keys in _apart(moves):
            reached: list[int | None] = [None] * len(state)
            for key in keys:
                if key is not None:
                    reached[key[0]] = key[1]
            yield ranges, tuple(reached)

    def accepted(state: tuple[int | None, ...]) -> bool:
        return accepts([at in language.accepting for at, language in zip(state, languages, strict=True)])

    if len(languages) > MAX_LANGUAGES:
        raise _TooLarge
    start: tuple[int | None, ...] = (0,) * len(languages)
    return _explored(start, moves_of, accepted)


def _apart(moves: Iterable[tuple[Ranges, _Key]]) -> Iterator[tuple[Ranges, frozenset[_Key]]]:
    """Moves with characters in common as moves without: each set of characters with all that it leads to."""
    sets: dict[int, Ranges] = {}  # by id: those of letters are long, and most moves share a few
    keys: dict[int, list[_Key]] = {}
    for ranges, key in moves:
        sets[id(ranges)] = ranges
        keys.setdefault(id(ranges), []).append(key)
    for part, members in _parts(sets):
        yield part, frozenset(key for member in members for key in keys[member])


def _parts(sets: Mapping[int, Ranges]) -> Iterator[tuple[Ranges, list[int]]]:
    """Normal sets of characters cut up where they overlap: each part with the numbers of the sets that it is of."""
    if len(sets) == 1:
        for number, ranges in sets.items():
            yield ranges, [number]
        return
    changes: dict[int, list[int]] = {}
    for number, ranges in sets.items():
        for low, high in ranges:
            changes.setdefault(low, []).append(number)
            changes.setdefault(high + 1, []).append(number)
    found: dict[frozenset[int], list[tuple[int, int]]] = {}
    inside: frozenset[int] = frozenset()
    before = 0
    for code in sorted(changes):
        if inside:
            found.setdefault(inside, []).append((before, code - 1))
        before = code
        inside = inside.symmetric_difference(changes[code])
    for members, pieces in found.items():
        yield union(pieces), [*members]


def _explored(
    start: _State,
    moves_of: Callable[[_State], Iterable[tuple[Ranges, _State]]],
    accepts: Callable[[_State], bool],
) -> Language:
    """The language of an automaton that is given by its start and what follows from each state."""
    numbers, order = {start: 0}, [start]
    moves: list[list[tuple[Ranges, int]]] = []
    looked_at = 0
    for state in order:
        found = []
        for ranges, target in moves_of(state):
            looked_at += len(ranges)
            if target not in numbers:
                numbers[target] = len(order)
                order.append(target)
            found.append((ranges, numbers[target]))
        if looked_at > MAX_MOVES or len(order) > MAX_STATES:
            raise _TooLarge
        moves.append(found)
    return _alive(moves, {number for state, number in numbers.items() if accepts(state)})


def _alive(moves: Sequence[Sequence[tuple[Ranges, int]]], accepting: set[int]) -> Language:
    """Without the states from which no text can be finished."""
    live = _reaching(moves, accepting)
    if 0 not in live:
        return NOTHING
    numbers = {state: number for number, state in enumerate(sorted(live))}
    kept = (tuple((ranges, numbers[to]) for ranges, to in moves[state] if to in live) for state in numbers)
    return Language(tuple(kept), frozenset(numbers[state] for state in accepting))


def _smallest(language: Language) -> Language:
    """The smallest automaton with the same texts, its states in the order in which they are met."""
    classes = _classes(language)
    numbers = {classes[0]: 0}
    met = [0]  # one state of each class
    moves: list[tuple[tuple[Ranges, int], ...]] = []
    for state in met:
        targets = {classes[target]: target for _, target in language.moves[state]}
        found: list[tuple[Ranges, int]] = []
        for ranges, reached in sorted(
            (ranges, reached) for reached, ranges in _signature(language.moves[state], classes)
        ):
            if reached not in numbers:
                numbers[reached] = len(met)
                met.append(targets[reached])
            found.append((ranges, numbers[reached]))
        moves.append(tuple(found))
    return Language(tuple(moves), frozenset(number for number, state in enumerate(met) if state in language.accepting))


def _classes(language: Language) -> list[int]:
    """By state, the number of a class of states that no text tells apart.

    A class is split as its states turn out to differ. The largest part keeps the number, and only what leads to one of
    the others is looked at again.
    """
    sources = _sources(language.moves)
    classes = [int(state in language.accepting) for state in range(len(sources))]
    sizes = [classes.count(0), classes.count(1)]
    signatures: list[_Signature | None] = [None, None]
    changed = set(range(len(sources)))
    while changed:
        parts: dict[int, dict[_Signature, list[int]]] = {}
        for state in changed:
            signature = _signature(language.moves[state], classes)
            parts.setdefault(classes[state], {}).setdefault(signature, []).append(state)
        changed = set()
        for number, by_signature in parts.items():
            if sum(map(len, by_signature.values())) == sizes[number]:
                signatures[number] = max(by_signature.items(), key=lambda item: len(item[1]))[0]
            for signature, states in by_signature.items():
                if signature != signatures[number]:
                    sizes[number] -= len(states)
                    for state in states:
                        classes[state] = len(sizes)
                        changed |= sources[state]
                    sizes.append(len(states))
                    signatures.append(signature)
    return classes


def _signature(moves: Sequence[tuple[Ranges, int]], classes: Sequence[int]) -> _Signature:
    """Which characters lead to which class."""
    joined: dict[int, Ranges] = {}
    for ranges, target in moves:
        known = joined.get(classes[target])
        joined[classes[target]] = ranges if known is None else union((*known, *ranges))
    return frozenset(joined.items())


def _reaching(moves: Sequence[Sequence[tuple[Ranges, int]]], accepting: set[int]) -> set[int]:
    """The states from which a text can be finished."""
    sources = _sources(moves)
    live, pending = set(accepting), list(accepting)
    while pending:
        found = sources[pending.pop()] - live
        live |= found
        pending += found
    return live


def _sources(moves: Sequence[Sequence[tuple[Ranges, int]]]) -> list[set[int]]:
    """By state, those that a character leads from to it."""
    sources: list[set[int]] = [set() for _ in moves]
    for state, found in enumerate(moves):
        for _, target in found:
            sources[target].add(state)
    return sources


# -- writing -------------------------------------------------------------------------------------------------


def _tree(language: Language) -> Node:
    """A tree that matches just the texts of a language: its states are taken away one by one."""
    start, end = -1, len(language.moves)
    ways: dict[int, dict[int, tuple[Node, int]]] = {start: {0: (_EMPTY, 0)}, end: {}}
    for state, moves in enumerate(language.moves):
        ways[state] = {target: (CharacterSet(ranges), 2 + 4 * len(ranges)) for ranges, target in moves}
        if state in language.accepting:
            ways[state][end] = (_EMPTY, 0)
    sources: dict[int, set[int]] = {}
    for state, targets in ways.items():
        for target in targets:
            sources.setdefault(target, set()).add(state)
    pending = set(range(end))
    while pending:
        state = min(pending, key=lambda at: (len(sources.get(at, ())) * len(ways[at]), at))
        pending.remove(state)
        _bypass(state, ways, sources)
    found = ways[start].get(end)
    return Alternatives(()) if found is None else found[0]


def _bypass(state: int, ways: dict[int, dict[int, tuple[Node, int]]], sources: dict[int, set[int]]) -> None:
    """Take a state away, and lead every way through it past it."""
    onward = ways.pop(state)
    loop = onward.pop(state, None)
    inside = () if loop is None else (repetition(loop[0], 0, None),)
    for target in onward:
        sources[target].discard(state)
    for source in sources.pop(state, set()) - {state}:
        first, length = ways[source].pop(state)
        for target, (last, more) in onward.items():
            node, size = series((first, *inside, last)), length + more + (4 + loop[1] if loop else 0)
            known = ways[source].get(target)
            if known is not None:
                node, size = alternatives((known[0], node)), known[1] + size + 4
            if size > MAX_WRITTEN:
                raise _TooLarge
            ways[source][target] = node, size
            sources.setdefault(target, set()).add(source)
