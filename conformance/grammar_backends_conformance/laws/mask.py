"""fill_bitmask: rows agree with what is accepted, over whole vocabularies, whatever was in the row before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from grammar_backends.contract import BitmaskTensor, GrammarKind, GrammarSpec, allocate_bitmask, unpack_ids
from grammar_backends.decoding import fill_bitmasks
from grammar_backends.errors import BitmaskError, DeadEnd, GrammarError, SpecError
from grammar_backends_conformance.laws.journal import RecordingGrammar
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import EVERY_VOCABULARY, law
from grammar_backends_conformance.laws.samples import Sample, declares

STALE = 0x5A5A5A5A
"""What rows hold before they are filled, where it is to be told whether they were."""

CHUNK = 512
"""Ids that are tried before it is checked that trying them left nothing behind."""


def places(lab: Lab, sample: Sample, most: int = 6) -> Iterator[RecordingGrammar]:
    """A grammar at up to `most` places, evenly spread, of the longest text; its end is one of them."""
    tokens = lab.encode(sample.longest)
    step = max(1, -(-len(tokens) // (most - 1)))
    for end in sorted({*range(0, len(tokens), step), len(tokens)}):
        grammar = lab.new_grammar(sample.spec)
        lab.equal(grammar.accept_tokens("r", tokens[:end]), True, "the start of a text was refused")
        yield grammar


def check_agreement(lab: Lab, grammar: RecordingGrammar, ids: Sequence[int]) -> None:
    """Demand that row, validation and acceptance agree on each of `ids`, in the present state."""
    allowed = lab.allowed(grammar)
    before = lab.state(grammar)
    for start in range(0, len(ids), CHUNK):
        mark = lab.journal.mark()
        for id_ in ids[start : start + CHUNK]:
            _check_id(lab, grammar, id_, id_ in allowed)
        lab.same(grammar, before, "ids that were tried and taken back left a trace")
        lab.journal.forget(mark)


def _check_id(lab: Lab, grammar: RecordingGrammar, id_: int, allowed: bool) -> None:
    legal = grammar.validate_tokens([id_]) == [id_]
    accepted = grammar.accept_tokens("r", [id_])
    if accepted:
        grammar.rollback(1)
    lab.equal(accepted, legal, f"validation and acceptance differ about the id {id_}")
    if allowed or lab.full:
        lab.equal(allowed, accepted, f"the row and acceptance differ about the id {id_}")


@law("A12", "mask-agrees", vocabularies=EVERY_VOCABULARY)
def mask_validation_and_acceptance_agree(lab: Lab, sample: Sample) -> None:
    """Every id in the row is legal for validation and acceptance; where `mask` is "full", no other one is."""
    for grammar in places(lab, sample, 6 if lab.is_small else 3):
        check_agreement(lab, grammar, lab.some_ids())


@law("A12", "mask-agrees-on-every-id", vocabularies=EVERY_VOCABULARY[2:])
def mask_agrees_on_every_id_of_a_real_vocabulary(lab: Lab) -> None:
    """In the middle of a text, row, validation and acceptance agree on each single id of a real vocabulary."""
    for sample in lab.samples[:2]:
        tokens = lab.encode(sample.longest)
        grammar = lab.new_grammar(sample.spec)
        grammar.accept_tokens("r", tokens[: len(tokens) // 2])
        check_agreement(lab, grammar, range(lab.vocabulary.width))


@law("A12", "mask-agrees-under-own-stops")
def mask_agrees_under_own_stop_ids(lab: Lab, sample: Sample) -> None:
    """Row, validation and acceptance agree also where a request's stop ids are text or control tokens."""
    tokens = lab.encode(sample.longest)
    for stops in ([tokens[-1], *lab.vocabulary.stop_ids], [max(lab.controls)], [tokens[-1], min(lab.controls)]):
        end = tokens.index(tokens[-1])
        for cut in {0, end // 2, end}:
            grammar = lab.new_grammar(sample.spec, stop_token_ids=stops)
            grammar.accept_tokens("r", tokens[:cut])
            try:
                check_agreement(lab, grammar, lab.some_ids())
            except DeadEnd:  # the request's stop id was the only way on
                lab.demand(tokens[-1] in stops, "a dead end without a reason", "a row", "DeadEnd")


@law("A12", "canonical-text-is-allowed", vocabularies=EVERY_VOCABULARY)
def every_canonical_text_is_allowed_token_by_token(lab: Lab, sample: Sample) -> None:
    """Each token of the tokenizer's own encoding of a text is in the row when its turn comes, and so is the stop."""
    for text in sample.texts:
        grammar = lab.new_grammar(sample.spec)
        for token in [*lab.encode(text), lab.stop]:
            bytes_ = lab.vocabulary.token_bytes(token)
            lab.demand(token in lab.allowed(grammar), f"{bytes_!r} of {text!r} is masked", "allowed", "masked")
            lab.equal(grammar.accept_tokens("r", [token]), True, f"{bytes_!r} of {text!r} was refused")


@law("A12", "every-spelling-is-accepted", vocabularies=EVERY_VOCABULARY)
def every_spelling_of_a_text_is_accepted(lab: Lab, sample: Sample) -> None:
    """A text is of the language however tokens spell it: byte by byte, and with every token that fits."""
    for text in sample.texts:
        for tokens in _spellings(lab, text.encode()):
            grammar = lab.new_grammar(sample.spec)
            for index, token in enumerate(tokens):
                accepted = grammar.accept_tokens("r", [token])
                bytes_ = lab.vocabulary.token_bytes(token)
                lab.equal(accepted, True, f"{bytes_!r}, token {index} of another spelling of {text!r}, was refused")
            lab.equal(grammar.is_accepting(), True, f"{text!r} is not complete in another spelling")


def _spellings(lab: Lab, data: bytes) -> Iterator[list[int]]:
    """Up to three spellings: shortest tokens, the last twin of each, and longest tokens after one short one."""
    ids: dict[bytes, list[int]] = {}
    for id_, token in enumerate(lab.vocabulary.text_tokens):
        if token and token in data:
            ids.setdefault(token, []).append(id_)
    for first, other in ((1, 1), (64, 64), (1, 64)):
        tokens: list[int] = []
        rest = data
        while rest:
            longest = first if not tokens else other
            found = [rest[:n] for n in range(1, longest + 1) if rest[:n] in ids]
            if not found:
                break
            tokens.append(ids[found[-1]][-1])
            rest = rest[len(found[-1]) :]
        if not rest:
            yield tokens


RECURSIVE_SCHEMAS = (
    ({"type": "array", "items": {"$ref": "#"}}, "[[["),
    ({"type": "object", "properties": {"n": {"$ref": "#"}}, "additionalProperties": False}, '{"n": {"n": {'),
    (
        {
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}}},
        },
        '{"n": {"n": {',
    ),
    ({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"$ref": "#"}}}]}, '{"n": {"n": {'),
)
RECURSIVE_GRAMMARS = (
    ('root ::= "x" | "(" root ")"', "(((x"),
    ('root ::= "" | "{" root "}" | "a" root', "{{aa"),
    ('root ::= "[" root "]" root | ""', "[[[]"),
)


@law("A12", "tokens-across-levels")
def tokens_that_close_several_levels_are_allowed(lab: Lab) -> None:
    """In recursive constraints a token that closes several levels at once is allowed and accepted alike."""
    specs = [(GrammarSpec.json_schema(schema), opening) for schema, opening in RECURSIVE_SCHEMAS]
    if declares(lab.capabilities, "ebnf"):
        specs += [(GrammarSpec.grammar(text, "ebnf"), opening) for text, opening in RECURSIVE_GRAMMARS]
    for spec, opening in specs:
        if spec.kind not in lab.capabilities.kinds or isinstance(lab.refusal(spec), SpecError):
            continue  # recursion is no capability that a kind implies
        grammar = lab.new_grammar(spec)
        for token in lab.encode(opening):
            lab.equal(grammar.accept_tokens("r", [token]), True, f"the start of {opening!r} was refused")
            check_agreement(lab, grammar, lab.some_ids())
    for sample in lab.samples:  # where nothing recursive is declared, tokens still span what texts have
        for grammar in places(lab, sample, 3):
            check_agreement(lab, grammar, _spanning_ids(lab))


def _spanning_ids(lab: Lab) -> list[int]:
    return [id_ for id_, token in enumerate(lab.vocabulary.text_tokens) if len(token) > 1]


@law("A12", "duplicates-are-alike", vocabularies=("adversarial",))
def tokens_with_the_same_bytes_are_alike(lab: Lab, sample: Sample) -> None:
    """Text tokens with the same bytes are all legal or all illegal, and lead to the same state."""
    twins: dict[bytes, list[int]] = {}
    for id_, token in enumerate(lab.vocabulary.text_tokens):
        if token:
            twins.setdefault(token, []).append(id_)
    groups = [ids for ids in twins.values() if len(ids) > 1]
    for grammar in places(lab, sample, 4):
        allowed = lab.allowed(grammar)
        for group in groups:
            legal = [grammar.validate_tokens([id_]) == [id_] for id_ in group]
            lab.equal(len(set(legal)), 1, f"of tokens with the same bytes {group} some are legal")
            if lab.full:
                lab.equal({id_ in allowed for id_ in group}, set(legal), f"of alike tokens {group} some are masked")
            if legal[0]:
                states = []
                for id_ in group:
                    fork = grammar.fork()
                    fork.accept_tokens("r", [id_])
                    states.append(lab.state(fork))
                lab.equal(states[0], states[-1], f"tokens with the same bytes {group} lead to different states")


@law("A12", "whole-row-is-written", vocabularies=EVERY_VOCABULARY)
def the_whole_row_is_written(lab: Lab, sample: Sample) -> None:
    """Every word of the row is written: what it held before never matters, before and after termination."""
    for grammar in places(lab, sample, 3):
        _check_stale(lab, grammar)
    grammar = lab.grammar(sample.spec, sample.texts[0])
    grammar.accept_tokens("r", [lab.stop])
    _check_stale(lab, grammar)


def _check_stale(lab: Lab, grammar: RecordingGrammar) -> None:
    clean = lab.row(grammar, stale=0)
    for stale in (-1, STALE, -(2**31)):
        row = lab.row(grammar, stale)
        lab.demand(np.array_equal(row, clean), f"words that held {stale} were kept", "the row over zeros", _ids(row))


def _ids(row: NDArray[np.int32]) -> list[int]:
    return unpack_ids(row)[:20]


@law("A12", "padding-is-never-allowed", vocabularies=EVERY_VOCABULARY)
def padded_ids_and_tail_bits_are_never_allowed(lab: Lab, sample: Sample) -> None:
    """Bits of padded ids, and those past the width in the last word, are 0 in every state."""
    for grammar in places(lab, sample, 4):
        ids = unpack_ids(lab.row(grammar))
        lab.demand(max(ids) < lab.vocabulary.size, "a padded id is allowed", f"< {lab.vocabulary.size}", ids[-5:])
    grammar = lab.grammar(sample.spec, sample.texts[0])
    grammar.accept_tokens("r", [lab.stop])
    ids = unpack_ids(lab.row(grammar))
    lab.demand(max(ids) < lab.vocabulary.size, "a terminated grammar allows a padded id", "none", ids[-5:])


@law("A12", "other-rows-keep-every-bit")
def other_rows_keep_every_bit(lab: Lab, sample: Sample) -> None:
    """Filling one row writes that row and no other, in torch tensors and numpy arrays, first row and last."""
    grammar = lab.grammar(sample.spec, sample.texts[0])
    expected = lab.row(grammar)
    for row in (0, 2, 4):
        tensor = torch.full((5, lab.vocabulary.words), STALE, dtype=torch.int32)
        array = np.full((5, lab.vocabulary.words), STALE, dtype=np.int32)
        bitmasks: tuple[BitmaskTensor, ...] = (tensor, array)
        for bitmask in bitmasks:
            grammar.fill_bitmask(bitmask, row)
            filled = np.asarray(bitmask)
            lab.demand(np.array_equal(filled[row], expected), f"row {row} is not the grammar's", "its row", "another")
            others = np.delete(filled, row, axis=0)
            lab.demand(bool((others == STALE).all()), f"filling row {row} wrote into others", "untouched", "written")


@law("A12", "says-whether-it-masks")
def filling_says_whether_the_row_masks_anything(lab: Lab, sample: Sample) -> None:
    """`fill_bitmask` returns False exactly when the row is all ones; special tokens are never text, so it is True."""
    bitmask = allocate_bitmask(1, lab.vocabulary.width)
    for grammar in places(lab, sample, 4):
        masked = grammar.fill_bitmask(bitmask, 0)
        lab.equal(masked, bool((bitmask[0] != -1).any()), "what filling returns is not whether the row masks anything")
    grammar = lab.grammar(sample.spec, sample.texts[0])
    grammar.accept_tokens("r", [lab.stop])
    lab.equal(grammar.fill_bitmask(bitmask, 0), True, "a terminated grammar masks everything but stop tokens")


@law("A13", "terminated-allows-stops-only")
def a_terminated_grammar_allows_the_stop_tokens_only(lab: Lab, sample: Sample) -> None:
    """After the stop token the row holds the stop set and nothing else, for default and own stop ids."""
    for text in sample.texts:
        for stops in (lab.vocabulary.stop_ids, (max(lab.controls),)):
            grammar = lab.grammar(sample.spec, text, stop_token_ids=stops)
            for stop in stops:
                fork = grammar.fork()
                lab.equal(fork.accept_tokens("r", [stop]), True, "a stop token after a text was refused")
                lab.equal(lab.allowed(fork), set(stops), "a terminated grammar allows its stop set only")
                lab.equal(fork.error, None, "filling a terminated grammar led to an error")


TINY = ([b"a", b"b", b"ab", b'"', b"{", b"}", b"<eos>"], [6], [6])
"""Too few tokens to spell every text: languages have dead ends with it."""


def _with_dead_ends(lab: Lab) -> list[tuple[GrammarSpec, bytes]]:
    """Constraints that cannot be finished after some text with the tokens `TINY`, though they can be begun."""
    specs = {
        "choice": (GrammarSpec.choice(["ax", "bb"]), b"a"),
        "regex": (GrammarSpec.regex("ax|bb"), b"a"),
        "ebnf": (GrammarSpec.grammar('root ::= "ax" | "bb"', "ebnf"), b"a"),
        "gbnf": (GrammarSpec.grammar('root ::= "ax" | "bb"', "gbnf"), b"a"),
        "lark": (GrammarSpec.grammar('start: "ax" | "bb"', "lark"), b"a"),
        "json_schema": (GrammarSpec.json_schema({"enum": ["ax", "bb"]}), b'"a'),
        "json_object": (GrammarSpec.json_object(), b'{"a"'),
    }
    return [spec for writing, spec in specs.items() if declares(lab.capabilities, writing)]


@law("A14", "dead-end-is-an-error", vocabularies=("byte",))
def a_dead_end_is_an_error_and_a_rollback_recovers(lab: Lab) -> None:
    """Where no token is legal and no text complete, filling raises DeadEnd, again and again; nothing looks like
    success until it is rolled back or reset. Refusing such a constraint at once is as good."""
    tiny = lab.with_tokens(*TINY)
    for spec, text in _with_dead_ends(lab):
        if isinstance(tiny.refusal(spec), SpecError):
            continue
        grammar, twin = tiny.new_grammar(spec), tiny.new_grammar(spec)
        tokens = [TINY[0].index(bytes([value])) for value in text]
        grammar.accept_tokens("r", tokens[:-1])
        twin.accept_tokens("r", tokens[:-1])
        before = tiny.state(grammar)
        for _ in range(2):
            if not grammar.accept_tokens("r", tokens[-1:]):
                break  # it looks ahead: a token that leads nowhere is illegal
            _check_dead_end(tiny, grammar)
            fork, other = grammar.fork(), grammar.fork()
            for dead in (fork, grammar):
                dead.rollback(1)
                tiny.same(dead, before, "a dead end that was rolled back leads elsewhere")
            other.reset()
            tiny.same(other, tiny.state(tiny.new_grammar(spec)), "a reset at a dead end leads elsewhere")


def _check_dead_end(lab: Lab, grammar: RecordingGrammar) -> None:
    for _ in range(2):
        lab.raises(DeadEnd, lambda: lab.row(grammar), "a row without any token was filled")
        lab.demand(isinstance(grammar.error, DeadEnd), "a dead end is not remembered", "DeadEnd", grammar.error)
    for id_ in range(len(TINY[0])):
        lab.equal(grammar.accept_tokens("r", [id_]), False, "a dead end accepted a token")
        lab.equal(grammar.validate_tokens([id_]), [], "a dead end called a token legal")
    lab.equal(grammar.accept_tokens("r", []), False, "accepting nothing succeeds in the error state (A5)")
    lab.equal((grammar.is_terminated(), grammar.is_accepting()), (False, False), "a dead end looks like success")


@law("A32", "no-way-on-is-never-hidden", vocabularies=("byte",))
def a_state_without_a_way_on_is_never_hidden(lab: Lab) -> None:
    """Along every path through a vocabulary that cannot spell all texts, a row has a legal token, or is a dead end."""
    tiny = lab.with_tokens(*TINY)
    for spec, _ in _with_dead_ends(lab):
        if isinstance(tiny.refusal(spec), SpecError):
            continue
        grammar = tiny.new_grammar(spec)
        _explore(tiny, grammar, depth=4)


def _explore(lab: Lab, grammar: RecordingGrammar, depth: int) -> None:
    try:
        allowed = lab.allowed(grammar)
    except DeadEnd:
        lab.equal(grammar.is_accepting(), False, "a dead end is accepting")
        return
    lab.demand(bool(allowed), "a row without any token was filled", "DeadEnd", "an empty row")
    lab.equal(bool(allowed & lab.vocabulary.stop_set), grammar.is_accepting(), "stop bits differ from is_accepting")
    for id_ in sorted(allowed - lab.vocabulary.stop_set) if depth else ():
        fork = grammar.fork()
        lab.equal(fork.accept_tokens("r", [id_]), True, "a token of the row was refused")
        _explore(lab, fork, depth - 1)


@law("A20", "bitmask-misuse-raises")
def misuse_of_the_bitmask_raises_and_changes_nothing(lab: Lab, sample: Sample) -> None:
    """A bitmask of the wrong shape, type, device or layout, or a row outside it, raises BitmaskError."""
    words = lab.vocabulary.words
    good = allocate_bitmask(2, lab.vocabulary.width)
    wrong: list[tuple[BitmaskTensor, int]] = [
        (good, 2),
        (good, -1),
        (good, 10**6),
        (torch.zeros((2, words + 1), dtype=torch.int32), 0),
        (torch.zeros((2, max(1, words - 1)), dtype=torch.int32), 0),
        (torch.zeros((2, words), dtype=torch.int64), 0),
        (torch.zeros((words,), dtype=torch.int32), 0),
        (torch.zeros((1, 2, words), dtype=torch.int32), 0),
        (torch.zeros((2, words * 2), dtype=torch.int32)[:, ::2], 0),
        (torch.zeros((2, words), dtype=torch.int32, device="meta"), 0),
        (np.zeros((2, words), dtype=np.uint32), 0),
    ]
    grammar = lab.grammar(sample.spec, sample.texts[0])
    before = lab.state(grammar)
    for terminated in (False, True):
        if terminated:
            grammar.accept_tokens("r", [lab.stop])
            before = lab.state(grammar)
        for bitmask, row in wrong:
            message = f"row {row} of {tuple(bitmask.shape)} {bitmask.dtype} was filled"
            lab.raises(BitmaskError, lambda b=bitmask, r=row: grammar.fill_bitmask(b, r), message)  # type: ignore[misc]
            lab.same(grammar, before, "misuse of a bitmask changed the grammar")
        lab.demand(bool((good == -1).all()), "a refused fill wrote into the bitmask", "untouched", "written")


@law("A26", "same-history-same-row", vocabularies=EVERY_VOCABULARY)
def the_same_history_gives_the_same_row(lab: Lab, sample: Sample) -> None:
    """Rows depend on the compiled spec and the history alone: compiled again, and on another engine, they are equal."""
    others = [lab.compile_anew(sample.spec)]
    if lab.is_small:
        others.append(lab.widened(lab.vocabulary.width).compile(sample.spec))
    for text in sample.texts:
        tokens = lab.encode(text)
        grammar = lab.new_grammar(sample.spec)
        twins = [lab.new_grammar(sample.spec, compiled) for compiled in others]
        for token in (*tokens, lab.stop):
            state = lab.state(grammar)
            for twin in twins:
                lab.same(twin, state, "the same history gives another row where it was compiled again")
            for g in (grammar, *twins):
                g.accept_tokens("r", [token])


@law("A28", "inside-a-character")
def inside_a_character_nothing_is_complete(lab: Lab) -> None:
    """After a token that ends inside a character no text is complete, and stop tokens are masked and refused."""
    cut = 0
    for sample in lab.samples:
        for text in sample.texts:
            for index, character in enumerate(text):
                if ord(character) < 128:
                    continue
                data = character.encode()
                tokens = [lab.token(bytes([value])) for value in data]
                if None in tokens:
                    continue
                cut += 1
                _check_character(lab, lab.grammar(sample.spec, text[:index]), [id_ or 0 for id_ in tokens])
    lab.demand(cut > 0, "no sample has a character of several bytes that can be cut", "one", 0)


def _check_character(lab: Lab, grammar: RecordingGrammar, tokens: Sequence[int]) -> None:
    for token in tokens[:-1]:
        lab.equal(grammar.accept_tokens("r", [token]), True, "the start of a legal character was refused")
        lab.equal(grammar.is_accepting(), False, "a text that ends inside a character passes for complete")
        stops = lab.allowed(grammar) & lab.vocabulary.stop_set
        lab.equal(stops, set(), "a stop token is allowed inside a character")
        lab.equal(grammar.accept_tokens("r", [lab.stop]), False, "a stop token was accepted inside a character")
    lab.equal(grammar.accept_tokens("r", tokens[-1:]), True, "the end of a legal character was refused")


@law("A29", "special-tokens-are-no-text", vocabularies=EVERY_VOCABULARY)
def special_tokens_never_match_text(lab: Lab, sample: Sample) -> None:
    """Control tokens are never legal where the constraint asks for text, whatever their names spell."""
    controls = sorted(lab.controls)
    tried = controls if lab.is_small else controls[:: max(1, len(controls) // 100)]
    for text in (*sample.partial, *sample.texts):
        grammar = lab.grammar(sample.spec, text)
        lab.equal(lab.allowed(grammar) & lab.controls, set(), f"control tokens are allowed after {text!r}")
        for id_ in tried:
            lab.equal(grammar.validate_tokens([id_]), [], f"the control token {id_} is called legal")
            lab.equal(grammar.accept_tokens("r", [id_]), False, f"the control token {id_} was accepted")


@law("A29", "own-stops-are-no-text")
def control_tokens_that_stop_are_no_text(lab: Lab, sample: Sample) -> None:
    """A control token that is a stop id of the request still matches no text before the end."""
    for control in (min(lab.controls), max(lab.controls)):
        for text in sample.partial:
            grammar = lab.grammar(sample.spec, text, stop_token_ids=[control])
            allowed = lab.allowed(grammar) & lab.vocabulary.special_ids
            lab.equal(allowed, set(), f"special tokens are allowed after {text!r}")


EMPTY_TEXT = {
    "choice": GrammarSpec.choice([""]),
    "regex": GrammarSpec.regex(""),
    "ebnf": GrammarSpec.grammar('root ::= ""', "ebnf"),
    "gbnf": GrammarSpec.grammar('root ::= ""', "gbnf"),
}


@law("A30", "only-the-empty-text")
def only_the_empty_text_means_stop_tokens_only(lab: Lab) -> None:
    """A constraint that allows only the empty text is accepting at the start and allows stop tokens only; so does
    any constraint after a text that nothing can follow."""
    for writing, spec in EMPTY_TEXT.items():
        if declares(lab.capabilities, writing):
            _check_finished(lab, lab.new_grammar(spec))
    for sample in lab.samples:
        for text in sample.language.closed:
            _check_finished(lab, lab.grammar(sample.spec, text))


def _check_finished(lab: Lab, grammar: RecordingGrammar) -> None:
    lab.equal(grammar.is_accepting(), True, "nothing can follow, and the grammar is not accepting")
    lab.equal(lab.allowed(grammar), set(lab.vocabulary.stop_set), "nothing can follow but stop tokens")
    lab.equal(grammar.is_terminated(), False, "a finished text terminated by itself")
    lab.equal(grammar.accept_tokens("r", lab.encode("a")), False, "something follows a text that nothing can follow")
    lab.equal(grammar.accept_tokens("r", [lab.stop]), True, "the stop token was refused after a finished text")
    lab.equal(grammar.is_terminated(), True, "the stop token does not terminate")


@law("A12", "batch-fills-as-one-by-one", profile="core", vocabularies=EVERY_VOCABULARY)
def a_batch_is_filled_as_row_by_row(lab: Lab) -> None:
    """Filled together, in any order of rows, grammars get the rows that each fills alone, bit for bit; rows that are
    not listed keep every bit, and a member that cannot be filled harms no other."""
    grammars = list(_mixed(lab))
    expected = [_alone(lab, grammar) for grammar in grammars]
    size = len(grammars) + 3
    for rows in (list(range(len(grammars))), [size - 1 - index for index in range(len(grammars))]):
        tensor = torch.full((size, lab.vocabulary.words), STALE, dtype=torch.int32)
        bitmasks: tuple[BitmaskTensor, ...] = (tensor, np.full(tuple(tensor.shape), STALE, dtype=np.int32))
        for bitmask in bitmasks:
            lab.journal.note("fill_bitmasks({}, {}, {})", grammars, bitmask, rows)
            outcomes = fill_bitmasks(grammars, bitmask, rows)
            _check_batch(lab, np.asarray(bitmask), rows, expected, [outcome is None for outcome in outcomes])
    for index in range(len(grammars)):  # what goes wrong in small batches only, and between neighbours
        for members in ([index], [index, (index + 1) % len(grammars)]):
            bitmask = np.full((4, lab.vocabulary.words), STALE, dtype=np.int32)
            batch, rows = [grammars[member] for member in members], [2, 1][: len(members)]
            lab.journal.note("fill_bitmasks({}, {}, {})", batch, bitmask, rows)
            outcomes = fill_bitmasks(batch, bitmask, rows)
            alone = [expected[member] for member in members]
            _check_batch(lab, bitmask, rows, alone, [outcome is None for outcome in outcomes])
    again = [_alone(lab, grammar) for grammar in grammars]
    lab.demand(_same_rows(again, expected), "filling together changed a grammar", "the same rows", "others")


def _mixed(lab: Lab) -> Iterator[RecordingGrammar]:
    """Grammars of several samples in many states: at the start, in texts, forked, rolled back, terminated, with own
    stop ids, and at dead ends."""
    for sample in lab.samples[:8]:
        tokens = lab.encode(sample.longest)
        yield lab.new_grammar(sample.spec)
        middle = lab.new_grammar(sample.spec)
        middle.accept_tokens("r", tokens[: len(tokens) // 2])
        yield middle
        end = lab.grammar(sample.spec, sample.longest)
        yield end.fork()
        end.accept_tokens("r", [lab.stop])
        yield end
        back = end.fork()
        back.rollback(1)
        yield back
        yield lab.new_grammar(sample.spec, stop_token_ids=[max(lab.controls)])
        first = lab.new_grammar(sample.spec)
        allowed = lab.allowed(first)
        if len(allowed) < 64 and not allowed & lab.vocabulary.stop_set:
            yield lab.new_grammar(sample.spec, stop_token_ids=sorted(allowed))  # a dead end


def _alone(lab: Lab, grammar: RecordingGrammar) -> NDArray[np.int32] | None:
    try:
        return lab.row(grammar)
    except GrammarError:
        return None


def _same_rows(left: Iterable[NDArray[np.int32] | None], right: Iterable[NDArray[np.int32] | None]) -> bool:
    return all(
        (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b))
        for a, b in zip(left, right, strict=True)
    )


def _check_batch(
    lab: Lab,
    filled: NDArray[np.int32],
    rows: list[int],
    expected: list[NDArray[np.int32] | None],
    succeeded: list[bool],
) -> None:
    lab.equal(succeeded, [row is not None for row in expected], "in a batch other members fail than alone")
    for row, alone in zip(rows, expected, strict=True):
        wanted = np.zeros_like(filled[row]) if alone is None else alone
        same = np.array_equal(filled[row], wanted)
        lab.demand(same, f"row {row} of a batch differs from the row filled alone", _ids(wanted), _ids(filled[row]))
    others = np.delete(filled, rows, axis=0)
    lab.demand(bool((others == STALE).all()), "a batch wrote into rows that are not listed", "untouched", "written")


@law("B8", "dots-match-no-control-token", vocabularies=EVERY_VOCABULARY[2:])
def no_dot_matches_a_control_token(lab: Lab) -> None:
    """Free text, in whatever kind a backend has it, never matches a control token of a real vocabulary."""
    specs = [
        ("regex", GrammarSpec.regex("(.|\n)*"), ""),
        ("json_schema", GrammarSpec.json_schema({"type": "string"}), '"'),
        ("lark", GrammarSpec.grammar(r"start: /(.|\n)*/", "lark"), ""),
        ("json_object", GrammarSpec.json_object(), '{"'),
    ]
    for writing, spec, text in specs:
        if declares(lab.capabilities, writing):
            grammar = lab.grammar(spec, text)
            allowed = lab.allowed(grammar) & lab.controls
            lab.equal(allowed, set(), "control tokens are allowed in free text")
            for id_ in sorted(lab.controls):
                lab.equal(grammar.validate_tokens([id_]), [], f"the control token {id_} is legal in free text")
    kinds = lab.capabilities.kinds
    if not kinds & {GrammarKind.REGEX, GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT, GrammarKind.GRAMMAR}:
        for sample in lab.samples:
            lab.equal(lab.allowed(lab.new_grammar(sample.spec)) & lab.controls, set(), "control tokens are allowed")
