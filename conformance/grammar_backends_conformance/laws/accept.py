"""accept_tokens and validate_tokens: atomic, pure, and of one mind, with bad ids and stop tokens in every place."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from grammar_backends_conformance.laws.journal import RecordingGrammar
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import EVERY_VOCABULARY, law
from grammar_backends_conformance.laws.samples import Sample

NEGATIVE = (-1, -2, -32, -(2**31), -(2**40))
TOO_LARGE = (2**31, 2**32, 2**63, 2**70)


def stages(lab: Lab, sample: Sample, **options: Any) -> Iterator[tuple[str, RecordingGrammar]]:
    """A grammar at the start, after each partial text and after each text, with what it took so far."""
    for text in dict.fromkeys(("", *sample.partial, *sample.texts)):
        yield text, lab.grammar(sample.spec, text, **options)


@law("A1", "atomic-accept")
def refused_blocks_change_nothing(lab: Lab, sample: Sample) -> None:
    """A block with an illegal token anywhere is refused, and leaves the grammar as it was, now and later."""
    for text in (*sample.wrong, *sample.partial):
        tokens = lab.encode(text)
        grammar, twin = lab.twins(sample)
        bad = tokens if text in sample.wrong else [*tokens, max(lab.controls)]
        before = lab.state(grammar)
        for block in (bad, [*bad, lab.stop], [*bad, *bad]):
            lab.equal(grammar.accept_tokens("r", block), False, f"a block that ends illegally was accepted ({text!r})")
            lab.same(grammar, before, "a refused block changed the grammar")
        lab.same_future(grammar, twin, lab.encode(sample.longest), "a refused block changed what comes later")


@law("A1", "atomic-accept-after-every-prefix")
def refused_blocks_change_nothing_anywhere(lab: Lab, sample: Sample) -> None:
    """In the middle of a text, too, a refused block changes nothing, however much of it was legal, nor what a rollback
    leads to."""
    tokens = lab.encode(sample.longest)
    for start in range(0, len(tokens), max(1, len(tokens) // 6)):
        for limit in (None, 0, 2):
            grammar = lab.new_grammar(sample.spec, max_rollback=limit)
            lab.equal(grammar.accept_tokens("r", tokens[:start]), True, "a text of the language was refused")
            before = lab.state(grammar)
            back = min(start, 2 if limit is None else limit)
            earlier = lab.new_grammar(sample.spec)
            earlier.accept_tokens("r", tokens[: start - back])
            for end in {start, (start + len(tokens)) // 2, len(tokens)}:
                for bad in (max(lab.controls), -1, lab.vocabulary.size):
                    lab.equal(grammar.accept_tokens("r", [*tokens[start:end], bad]), False, "an illegal token passed")
                    lab.same(grammar, before, "a refused block changed the grammar")
            grammar.rollback(back)
            lab.same(grammar, lab.state(earlier), "a refused block changed what a rollback leads to")
            rest = [*tokens[start - back :], lab.stop]
            lab.equal(grammar.accept_tokens("r", rest), True, "after refused blocks the rest of a text is refused")
            lab.equal(grammar.is_terminated(), True, "a text and its stop token do not terminate")


@law("A1", "atomic-accept-with-early-stop")
def a_stop_token_that_comes_too_early_takes_its_block_along(lab: Lab, sample: Sample) -> None:
    """A block of legal text with a stop token where no text is complete is refused whole, wherever it begins."""
    for text in sample.partial:
        tokens = lab.encode(text)
        for start in range(len(tokens) + 1):
            grammar, twin = lab.new_grammar(sample.spec), lab.new_grammar(sample.spec)
            for g in (grammar, twin):
                g.accept_tokens("r", tokens[:start])
            before = lab.state(grammar)
            for block in ([*tokens[start:], lab.stop], [*tokens[start:], lab.stop, lab.stop, -1]):
                lab.equal(grammar.accept_tokens("r", block), False, f"a stop token after {text!r} was accepted")
                lab.same(grammar, before, f"a block of {text!r} and a stop token was refused and left a trace")
            lab.same_future(grammar, twin, tokens[start:], "a refused block changed what comes later")


@law("A2", "ignored-after-stop")
def tokens_after_the_stop_token_are_ignored(lab: Lab, sample: Sample) -> None:
    """Tokens behind the one that terminates are dropped: the call returns True, and they never enter the history."""
    for text in sample.texts:
        tokens = lab.encode(text)
        for behind in (
            tokens,
            [lab.stop],
            [max(lab.controls)],
            [-1],
            [2**40],
            [lab.stop, *tokens, -1, 2**40, lab.stop],
        ):
            grammar = lab.new_grammar(sample.spec)
            initial = lab.state(grammar)
            accepted = grammar.accept_tokens("r", [*tokens, lab.stop, *behind])
            lab.equal(accepted, True, "tokens behind a legal stop token made the call fail")
            lab.equal(grammar.is_terminated(), True, "a legal stop token does not terminate")
            lab.equal(grammar.num_accepted, len(tokens) + 1, "ignored tokens entered the history")
            grammar.rollback(len(tokens) + 1)
            lab.same(grammar, initial, "rolling back what was counted does not lead to the start")


@law("A3", "terminated-takes-everything")
def a_terminated_grammar_takes_everything(lab: Lab, sample: Sample) -> None:
    """A terminated grammar accepts any tokens without any change, and validates none."""
    tokens = lab.encode(sample.texts[0])
    grammar = lab.grammar(sample.spec, sample.texts[0])
    lab.equal(grammar.accept_tokens("r", [lab.stop]), True, "the stop token after a text of the language was refused")
    before = lab.state(grammar)
    for block in ([], [lab.stop], tokens, lab.encode("a"), [max(lab.controls)], [-1], [2**40], [lab.stop] * 3):
        lab.equal(grammar.accept_tokens("r", block), True, "a terminated grammar refused tokens")
        lab.equal(grammar.validate_tokens(block), [], "a terminated grammar called tokens legal")
        lab.same(grammar, before, "tokens after termination changed the grammar")


@law("A4", "roll-back-the-difference")
def the_difference_of_num_accepted_is_what_to_roll_back(lab: Lab, sample: Sample) -> None:
    """Whatever was passed in, rolling back the difference of `num_accepted` restores the state before."""
    tokens = lab.encode(sample.longest)
    for start in {0, len(tokens) // 2}:
        grammar = lab.new_grammar(sample.spec)
        grammar.accept_tokens("r", tokens[:start])
        before, count = lab.state(grammar), grammar.num_accepted
        grammar.accept_tokens("r", [*tokens[start:], lab.stop, *tokens])
        grammar.accept_tokens("r", [*tokens, lab.stop])
        grammar.accept_tokens("r", [-1])
        grammar.rollback(grammar.num_accepted - count)
        lab.same(grammar, before, "the difference of num_accepted leads elsewhere")


@law("A5", "empty-input")
def empty_input_changes_nothing(lab: Lab, sample: Sample) -> None:
    """Accepting or validating nothing, and rolling back nothing, succeed and change nothing in any state."""
    for text, grammar in stages(lab, sample):
        _check_empty(lab, grammar)
        if text in sample.texts:
            lab.equal(grammar.accept_tokens("r", [lab.stop]), True, "the stop token after a text was refused")
            _check_empty(lab, grammar)


def _check_empty(lab: Lab, grammar: RecordingGrammar) -> None:
    before = lab.state(grammar)
    nothings: list[Any] = [[], (), np.array([], dtype=np.int64)]
    for nothing in nothings:
        lab.equal(grammar.accept_tokens("r", nothing), True, "accepting no token failed")
        lab.equal(list(grammar.validate_tokens(nothing)), [], "validating no token gave some")
    grammar.rollback(0)
    lab.same(grammar, before, "empty input changed the grammar")


@law("A6", "negative-ids")
def negative_ids_are_refused(lab: Lab, sample: Sample) -> None:
    """A negative id is illegal wherever it stands: accepting refuses it unchanged, validation stops before it."""
    for bad in (*NEGATIVE, *_like_the_next(lab, sample, -lab.vocabulary.size, -lab.vocabulary.width)):
        _check_bad_id(lab, sample, bad)


@law("A7", "ids-out-of-range")
def ids_out_of_range_are_refused(lab: Lab, sample: Sample) -> None:
    """An id beyond the vocabulary is illegal wherever it stands, and harms nothing."""
    vocabulary = lab.vocabulary
    first = {vocabulary.size, vocabulary.width - 1, vocabulary.width, vocabulary.words * 32 - 1, vocabulary.words * 32}
    like = _like_the_next(lab, sample, vocabulary.size, vocabulary.width, vocabulary.words * 32, 2**16, 2**32)
    for bad in sorted({*TOO_LARGE, *first, *like} - set(range(vocabulary.size))):
        _check_bad_id(lab, sample, bad)


def _like_the_next(lab: Lab, sample: Sample, *offsets: int) -> list[int]:
    """Ids that a careless engine would take for the token that comes next in the middle of the longest text: counted
    from the end, or cut to a size."""
    tokens = lab.encode(sample.longest)
    return [tokens[len(tokens) // 2] + offset for offset in offsets]


def _check_bad_id(lab: Lab, sample: Sample, bad: int) -> None:
    tokens = lab.encode(sample.longest)
    half = len(tokens) // 2
    grammar = lab.new_grammar(sample.spec)
    grammar.accept_tokens("r", tokens[:half])
    rest = tokens[half:]
    before = lab.state(grammar)
    for block in ([bad], [bad, *rest], [*rest, bad], [*rest[:1], bad, *rest[1:], lab.stop]):
        lab.equal(grammar.accept_tokens("r", block), False, f"a block with the id {bad} was accepted")
        lab.equal(grammar.validate_tokens(block), block[: block.index(bad)], f"validation does not end before {bad}")
        lab.same(grammar, before, f"a refused block with the id {bad} changed the grammar")
    lab.equal(grammar.accept_tokens("r", [*rest, lab.stop]), True, f"after the id {bad} the rest of a text is refused")


@law("A7", "every-id-beyond-the-vocabulary")
def no_id_past_the_tokenizer_is_a_token(lab: Lab, sample: Sample) -> None:
    """Every id from the tokenizer's size to past the end of the row is refused, and never allowed by a row."""
    text = sample.texts[-1]
    grammar = lab.grammar(sample.spec, text)
    before = lab.state(grammar)
    lab.demand(
        max(before.allowed) < lab.vocabulary.size, "a row allows padded ids", f"< {lab.vocabulary.size}", before.allowed
    )
    for id_ in range(lab.vocabulary.size, lab.vocabulary.words * 32 + 2):
        lab.equal(grammar.validate_tokens([id_]), [], "an id without a token is called legal")
        lab.equal(grammar.accept_tokens("r", [id_]), False, "an id without a token was accepted")
    lab.same(grammar, before, "refused ids changed the grammar")


@law("A8", "validate-pure-and-maximal", vocabularies=EVERY_VOCABULARY)
def validation_is_pure_and_maximal(lab: Lab, sample: Sample) -> None:
    """Validation gives the longest prefix that accepting would apply whole, and leaves the grammar unchanged."""
    for text in (*sample.texts, *sample.partial, *sample.wrong):
        tokens = [*lab.encode(text), lab.stop, *lab.encode("a")]
        grammar, twin = lab.twins(sample)
        before = lab.state(grammar)
        legal = grammar.validate_tokens(tokens)
        lab.equal(legal, tokens[: len(legal)], "what validation gives is no prefix")
        lab.same(grammar, before, "validation changed the grammar")
        lab.equal(lab.stop in legal, text in sample.texts, f"the stop token after {text!r} is judged wrongly")
        lab.equal(grammar.accept_tokens("r", legal), True, "what validation calls legal was refused")
        lab.equal(grammar.num_accepted, len(legal), "accepting did not apply all that validation calls legal")
        if not grammar.is_terminated():
            following = tokens[len(legal) : len(legal) + 1]
            lab.equal(grammar.accept_tokens("r", following), False, "validation ended before a legal token")
        lab.equal(twin.accept_tokens("r", legal), True, "without validating first the same tokens are refused")
        lab.same(grammar, lab.state(twin), "a grammar that validated differs from one that did not")


@law("A8", "validate-of-known-texts")
def validation_of_known_texts(lab: Lab, sample: Sample) -> None:
    """Of texts and partial texts every token is legal, of wrong ones none that reaches the last character."""
    for text in (*sample.texts, *sample.partial):
        tokens = lab.encode(text)
        grammar = lab.new_grammar(sample.spec)
        lab.equal(grammar.validate_tokens(tokens), tokens, f"not all of {text!r} is called legal")
    for text in sample.wrong:
        tokens = lab.encode(text)
        legal = lab.new_grammar(sample.spec).validate_tokens(tokens)
        lab.demand(legal != tokens, f"{text!r} is called legal", "a shorter prefix", legal)
        length = len(lab.vocabulary.decode(legal))
        known = len(text[:-1].encode())
        bound = len(lab.vocabulary.decode(tokens[:-1])) if len(tokens) > 1 else 0
        lab.demand(length >= min(known, bound), f"too little of {text!r} is called legal", f"{known} bytes", length)


@law("A8", "validate-ends-with-stop")
def validation_ends_with_the_legal_stop_token(lab: Lab, sample: Sample) -> None:
    """A legal stop token is the last element that validation gives, and the first of several is the one."""
    for text in sample.texts:
        grammar = lab.grammar(sample.spec, text)
        for block in ([lab.stop], [lab.stop, lab.stop], [*lab.vocabulary.stop_ids, *lab.encode("a"), -1]):
            lab.equal(grammar.validate_tokens(block), block[:1], f"after {text!r} one stop token is legal, and no more")
    for text in sample.partial:
        grammar = lab.grammar(sample.spec, text)
        lab.equal(grammar.validate_tokens([lab.stop]), [], f"after {text!r} no stop token is legal")


@law("A9", "stop-only-while-accepting")
def a_stop_token_is_legal_only_while_accepting(lab: Lab, sample: Sample) -> None:
    """Before a text is complete a stop token is as illegal as any other; after it, it is one step and terminates."""
    for text in sample.partial:
        grammar = lab.grammar(sample.spec, text)
        before = lab.state(grammar)
        lab.equal(grammar.is_accepting(), False, f"{text!r} passes for a complete text")
        for stop in lab.vocabulary.stop_ids:
            lab.demand(stop not in before.allowed, f"a stop token is in the row after {text!r}", "masked", "allowed")
            lab.equal(grammar.accept_tokens("r", [stop]), False, f"a stop token was accepted after {text!r}")
            block = [*lab.encode(text), stop]
            accepted = lab.new_grammar(sample.spec).accept_tokens("r", block)
            lab.equal(accepted, False, f"in one block with {text!r} a stop token was accepted")
        lab.same(grammar, before, "a refused stop token changed the grammar")
    for text in sample.texts:
        grammar = lab.grammar(sample.spec, text)
        lab.equal(grammar.is_accepting(), True, f"{text!r} does not pass for a complete text")
        lab.demand(lab.stop in lab.allowed(grammar), f"the stop token is masked after {text!r}", "allowed", "masked")
        count = grammar.num_accepted
        lab.equal(grammar.accept_tokens("r", [lab.stop]), True, f"the stop token was refused after {text!r}")
        lab.equal(grammar.num_accepted, count + 1, "a stop token is one step")
        lab.equal(grammar.is_accepting(), False, "a terminated grammar is accepting")
        lab.equal(grammar.is_terminated(), True, "a stop token was accepted and the grammar is not terminated")
        accepted = lab.new_grammar(sample.spec).accept_tokens("r", [*lab.encode(text), lab.stop])
        lab.equal(accepted, True, f"in one block with {text!r} the stop token was refused")


@law("A9", "text-never-terminates")
def no_text_terminates(lab: Lab, sample: Sample) -> None:
    """Only a stop token terminates: no text does, also one that spells a stop token's name."""
    for text in (*sample.texts, *sample.partial):
        grammar = lab.new_grammar(sample.spec)
        for token in lab.encode(text):
            grammar.accept_tokens("r", [token])
            lab.equal(grammar.is_terminated(), False, f"text terminated the grammar ({text!r})")


@law("A11", "complete-is-not-terminated")
def a_complete_text_is_accepting_and_not_terminated(lab: Lab, sample: Sample) -> None:
    """A text that nothing can follow is accepting; it terminates with the stop token, and not before."""
    for text in sample.language.closed or sample.texts:
        grammar = lab.grammar(sample.spec, text)
        lab.equal(grammar.is_accepting(), True, f"{text!r} is complete and not accepting")
        lab.equal(grammar.is_terminated(), False, "terminated without a stop token")
        if text in sample.language.closed:
            lab.equal(lab.allowed(grammar), set(lab.vocabulary.stop_set), f"after {text!r} only stop tokens are legal")
            lab.equal(grammar.accept_tokens("r", lab.encode("a")), False, f"something was accepted after {text!r}")
            lab.equal(grammar.is_terminated(), False, "a refused token terminated the grammar")


@law("A20", "no-token-content-raises")
def no_token_content_raises(lab: Lab, sample: Sample) -> None:
    """Whatever ids are passed in whatever order, nothing raises and no error arises."""
    ids = (*NEGATIVE, *TOO_LARGE, lab.vocabulary.size, lab.stop, *sorted(lab.vocabulary.special_ids))[:40]
    for text in sample.partial or sample.texts[:1]:
        grammar, twin = lab.twins(sample, text)
        for id_ in ids:
            if id_ in lab.vocabulary.stop_set and text in sample.texts:
                continue
            for block in ([id_] * 3, [id_, 0], [0, id_]):
                grammar.validate_tokens(block)
            lab.equal(grammar.accept_tokens("r", [id_] * 3), False, f"three times the id {id_} was accepted")
            lab.equal(grammar.is_terminated(), False, f"the id {id_} terminated the grammar")
        lab.equal(grammar.error, None, "refused ids led to an error")
        lab.same(grammar, lab.state(twin), "refused ids changed the grammar")


@law("A20", "numpy-ids-are-ids")
def numpy_ids_are_ids(lab: Lab, sample: Sample) -> None:
    """Ids in numpy arrays, tuples and other sequences mean what they mean in lists."""
    tokens = [*lab.encode(sample.texts[0]), lab.stop]
    wrong = [*lab.encode(sample.texts[0]), -1]
    for dtype in (np.int32, np.int64):
        grammar = lab.new_grammar(sample.spec)
        whole, bad, *singles = [as_array(ids, dtype) for ids in (tokens, wrong, *([token] for token in tokens))]
        lab.equal(list(grammar.validate_tokens(whole)), tokens, "an array is not its ids")
        lab.equal(grammar.accept_tokens("r", bad), False, "an array hid a negative id")
        for single in singles:
            lab.equal(grammar.accept_tokens("r", single), True, "an array is not its ids")
        lab.equal(grammar.is_terminated(), True, "a stop token in an array does not terminate")
    grammar = lab.new_grammar(sample.spec)
    lab.equal(grammar.accept_tokens("r", tuple(tokens)), True, "a tuple is not its ids")


def as_array(ids: list[int], dtype: type[np.signedinteger[Any]]) -> Any:
    return np.array(ids, dtype=dtype)


@law("A21", "rejections-are-silent")
def rejections_are_silent(lab: Lab, sample: Sample) -> None:
    """Refused tokens write neither to the log nor to the standard streams: a line for each would flood a server."""
    grammar = lab.grammar(sample.spec, (sample.partial or sample.texts)[-1])
    with _written() as written:
        for block in ([-1], [2**40], [lab.vocabulary.size], [max(lab.controls)], [max(lab.controls), lab.stop]):
            for _ in range(3):
                grammar.validate_tokens(block)
                grammar.accept_tokens("r", block)
        lab.state(grammar)
    lab.equal("".join(written), "", "refused tokens were written about")


@contextlib.contextmanager
def _written() -> Iterator[list[str]]:
    """What is written to the log and, by native code too, to the standard streams meanwhile."""
    texts: list[str] = []
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(_redirected(descriptor)) for descriptor in (1, 2)]
            yield texts
            for file in files:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
    texts.append(log.getvalue())


@contextlib.contextmanager
def _redirected(descriptor: int) -> Iterator[Any]:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    saved = os.dup(descriptor)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        try:
            yield file
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os.dup2(saved, descriptor)
            os.close(saved)


@law("A22", "count-is-the-live-history")
def num_accepted_is_the_length_of_the_live_history(lab: Lab, sample: Sample) -> None:
    """`num_accepted` counts every accepted token and the stop token, and falls when they are rolled back."""
    tokens = lab.encode(sample.longest)
    grammar = lab.new_grammar(sample.spec)
    lab.equal(grammar.num_accepted, 0, "a new grammar has a history")
    for count, token in enumerate(tokens, start=1):
        grammar.accept_tokens("r", [token])
        lab.equal(grammar.num_accepted, count, "an accepted token is one step")
    grammar.accept_tokens("r", [-1])
    grammar.validate_tokens([lab.stop])
    lab.equal(grammar.num_accepted, len(tokens), "a refused or validated token was counted")
    grammar.accept_tokens("r", [lab.stop])
    for count in range(len(tokens), -1, -1):
        grammar.rollback(1)
        lab.equal(grammar.num_accepted, count, "a step that was rolled back is still counted")
    grammar.accept_tokens("r", [*tokens, lab.stop, lab.stop])
    lab.equal(grammar.num_accepted, len(tokens) + 1, "a block of tokens counts as its effective tokens")
    grammar.reset()
    lab.equal(grammar.num_accepted, 0, "a grammar that was reset has a history")


@law("A34", "block-equals-single-tokens", vocabularies=EVERY_VOCABULARY)
def a_block_equals_its_tokens_one_by_one(lab: Lab, sample: Sample) -> None:
    """Tokens accepted together and one by one lead to the same state, from the start and from the middle, also when
    they are many; a block that is illegal where it stands is not one that would be legal at the start."""
    loop = sample.language.loop
    for text in (*sample.texts, *([loop.text(60)] if loop else [])):
        tokens = lab.encode(text)
        one_by_one = lab.new_grammar(sample.spec)
        half = len(tokens) // 2
        for index, token in enumerate(tokens):
            if index == half:
                middle = one_by_one.fork()
                lab.equal(middle.accept_tokens("r", tokens[half:]), True, "the second half of a text was refused")
            lab.equal(one_by_one.accept_tokens("r", [token]), True, f"token {index} of {text!r} was refused")
        expected = lab.state(one_by_one)
        lab.same(lab.grammar(sample.spec, text), expected, "a block leads elsewhere than its tokens")
        if tokens:
            lab.same(middle, expected, "a block from the middle leads elsewhere than its tokens")
        _check_again(lab, one_by_one, lab.encode(sample.longest))


def _check_again(lab: Lab, grammar: RecordingGrammar, tokens: list[int]) -> None:
    singly, together = grammar.fork(), grammar.fork()
    legal = all(singly.accept_tokens("r", [token]) for token in tokens)
    lab.equal(together.accept_tokens("r", tokens), legal, "a block is judged otherwise than its tokens one by one")


@law("A35", "request-id-is-a-label")
def the_request_id_matters_nowhere(lab: Lab, sample: Sample) -> None:
    """The same tokens under other request ids give the same answers and states."""
    grammar, twin = lab.twins(sample)
    for index, token in enumerate([*lab.encode(sample.longest), -1, lab.stop]):
        answers = [
            g.accept_tokens(name, [token])
            for g, name in ((grammar, ("x", "", "y\n", "é" * 99)[index % 4]), (twin, "r"))
        ]
        lab.equal(answers[0], answers[1], "another request id gives another answer")
        lab.same(grammar, lab.state(twin), "another request id leads to another state")
