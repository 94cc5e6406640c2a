"""The stop set: of the vocabulary or of the request, masked until a text is complete, and any one terminates."""

from __future__ import annotations

from collections.abc import Sequence

from grammar_backends.errors import DeadEnd, VocabularyError
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import law
from grammar_backends_conformance.laws.samples import Sample


def stop_sets(lab: Lab) -> list[tuple[int, ...]]:
    """Stop sets of a request: control tokens, text tokens, both, the first of all ids, and together with the
    vocabulary's own."""
    controls = sorted(lab.controls)
    text = next(id_ for id_ in reversed(range(lab.vocabulary.size)) if lab.vocabulary.text_tokens[id_])
    own = lab.vocabulary.stop_ids
    return [(controls[-1],), (controls[0], text), (0, controls[-1]), (controls[-1], *own), own[:1]]


@law("A10", "masked-until-accepting")
def every_stop_id_is_masked_until_accepting(lab: Lab, sample: Sample) -> None:
    """Whatever stop ids a request brings, all are masked and refused until a text is complete, then all are legal."""
    for stops in (lab.vocabulary.stop_ids, *stop_sets(lab)):
        for text in (*sample.partial, *sample.texts):
            tokens = lab.encode(text)
            if set(tokens) & set(stops):
                continue
            grammar = lab.new_grammar(sample.spec, stop_token_ids=stops)
            lab.equal(grammar.accept_tokens("r", tokens), True, f"{text!r} was refused under own stop ids")
            complete = text in sample.texts
            lab.equal(grammar.is_accepting(), complete, f"own stop ids change whether {text!r} is complete")
            allowed = lab.allowed(grammar) & set(stops)
            lab.equal(allowed, set(stops) if complete else set(), f"stop ids in the row after {text!r}")
            for stop in stops:
                lab.equal(grammar.validate_tokens([stop]), [stop] if complete else [], "a stop id is judged wrongly")
                if not complete:
                    lab.equal(grammar.accept_tokens("r", [stop]), False, "a stop id was accepted before the end")


@law("A31", "any-stop-id-terminates")
def any_stop_id_terminates(lab: Lab, sample: Sample) -> None:
    """Any member of the stop set terminates, as one step; the others that follow are ignored."""
    for stops in (lab.vocabulary.stop_ids, *stop_sets(lab)):
        text = next((text for text in sample.texts if not set(lab.encode(text)) & set(stops)), None)
        for stop in stops if text is not None else ():
            grammar = lab.grammar(sample.spec, text or "", stop_token_ids=stops)
            before = lab.state(grammar)
            lab.equal(grammar.validate_tokens([stop, *stops]), [stop], "after a stop id nothing is legal")
            lab.equal(grammar.accept_tokens("r", [stop, *stops]), True, f"the stop id {stop} was refused")
            lab.equal(grammar.is_terminated(), True, f"the stop id {stop} does not terminate")
            lab.equal(grammar.num_accepted, before.num_accepted + 1, "stop ids after the first are ignored")
            lab.equal(lab.allowed(grammar), set(stops), "a terminated grammar allows its own stop ids, and no others")
            grammar.rollback(1)
            lab.same(grammar, before, "rolling back a stop id leads elsewhere")


@law("A10", "others-replace-the-vocabularys")
def the_vocabularys_own_stop_ids_are_illegal_under_others(lab: Lab, sample: Sample) -> None:
    """Stop ids of the request replace the vocabulary's: those are then neither text nor stop, and masked."""
    other = max(lab.controls)
    for text in (*sample.texts, *sample.partial):
        grammar = lab.grammar(sample.spec, text, stop_token_ids=[other])
        before = lab.state(grammar)
        for stop in lab.vocabulary.stop_ids:
            lab.demand(stop not in before.allowed, "a replaced stop id is allowed", "masked", "allowed")
            lab.equal(grammar.validate_tokens([stop, other]), [], "a replaced stop id is called legal")
            lab.equal(grammar.accept_tokens("r", [stop]), False, "a replaced stop id was accepted")
            lab.same(grammar, before, "a replaced stop id changed the grammar")
        if text in sample.texts:
            lab.equal(grammar.accept_tokens("r", [other]), True, "the request's own stop id was refused")
            lab.equal(grammar.is_terminated(), True, "the request's own stop id does not terminate")


@law("A10", "of-one-request-only")
def stop_ids_of_one_request_do_not_reach_another(lab: Lab, sample: Sample) -> None:
    """Grammars of one compiled grammar have stop ids of their own, whichever was made or used first."""
    other = max(lab.controls)
    before = lab.grammar(sample.spec, sample.texts[0])
    expected = lab.state(before)
    own = lab.grammar(sample.spec, sample.texts[0], stop_token_ids=[other])
    lab.equal(lab.allowed(own) & lab.vocabulary.special_ids, {other}, "a request's own stop ids are its stop ids")
    own.accept_tokens("r", [other])
    lab.same(before, expected, "another request's stop ids reached a grammar made before")
    lab.same(lab.grammar(sample.spec, sample.texts[0]), expected, "another request's stop ids reached a later grammar")


@law("A10", "none-means-the-vocabularys")
def no_stop_ids_of_its_own_means_the_vocabularys(lab: Lab, sample: Sample) -> None:
    """None and an empty list both mean the stop ids of the vocabulary, in whatever order they are given."""
    expected = lab.state(lab.grammar(sample.spec, sample.texts[0]))
    ways: list[Sequence[int] | None] = [None, [], (), lab.vocabulary.stop_ids, lab.vocabulary.stop_ids[::-1]]
    for stops in ways:
        state = lab.state(lab.grammar(sample.spec, sample.texts[0], stop_token_ids=stops))
        lab.equal(state, expected, f"stop_token_ids={stops} does not mean the vocabulary's")


@law("A10", "unknown-stop-ids-are-refused")
def stop_ids_outside_the_vocabulary_are_refused(lab: Lab) -> None:
    """A stop id that is no token is refused when the grammar is made: VocabularyError."""
    compiled = lab.compile(lab.samples[0].spec)
    for bad in (-1, lab.vocabulary.size, 2**40):
        message = f"the stop id {bad} was taken"
        lab.raises(VocabularyError, lambda bad=bad: compiled.new_grammar(stop_token_ids=[lab.stop, bad]), message)  # type: ignore[misc]


@law("A9", "stop-reading-wins")
def the_stop_reading_wins_over_a_text_reading(lab: Lab, sample: Sample) -> None:
    """A stop id that is also text is never text: masked and refused before the end, and terminating at it."""
    tokens = lab.encode(sample.longest)
    for stop in dict.fromkeys(tokens):
        first = tokens.index(stop)
        grammar = lab.new_grammar(sample.spec, stop_token_ids=[stop])
        lab.equal(grammar.accept_tokens("r", tokens[:first]), True, "text before the stop id was refused")
        if grammar.is_accepting():
            lab.equal(grammar.validate_tokens([stop, stop]), [stop], "the text reading of a stop id won")
            lab.equal(grammar.accept_tokens("r", [stop, *tokens]), True, "a stop id that is also text was refused")
            lab.equal(grammar.is_terminated(), True, "a stop id that is also text was taken as text")
            lab.equal(grammar.num_accepted, first + 1, "tokens after a stop id entered the history")
            continue
        try:
            allowed = lab.allowed(grammar)
        except DeadEnd:  # the stop id was the only way on
            grammar.reset()
            grammar.accept_tokens("r", tokens[:first])
            allowed = set()
        lab.demand(stop not in allowed, "a stop id is allowed as text", "masked", "allowed")
        lab.equal(grammar.validate_tokens([stop]), [], "a stop id is legal as text")
        lab.equal(grammar.accept_tokens("r", [stop]), False, "a stop id was accepted as text")
    if sample.language.growing:
        _check_growing(lab, sample, *sample.language.growing)


def _check_growing(lab: Lab, sample: Sample, short: str, longer: str) -> None:
    before, following = lab.encode(short), lab.encode(longer[len(short) :])[0]
    if following in before:
        return
    grammar = lab.new_grammar(sample.spec, stop_token_ids=[following])
    grammar.accept_tokens("r", before)
    lab.equal(grammar.accept_tokens("r", [following, following]), True, "a legal stop id was refused")
    lab.equal(grammar.is_terminated(), True, "a stop id that could go on as text does not terminate")
    lab.equal(grammar.num_accepted, len(before) + 1, "a stop id that could go on as text was taken as text")


@law("A9", "stop-text-completes-nothing")
def the_text_of_a_stop_token_completes_nothing(lab: Lab, sample: Sample) -> None:
    """A stop token whose name spells text that would be legal is still no text, and completes none."""
    names = lab.vocabulary.special_names
    for text in sample.partial:
        for id_ in sorted(lab.vocabulary.special_ids):
            grammar = lab.grammar(sample.spec, text)
            lab.equal(grammar.accept_tokens("r", [id_]), False, f"a token named {names[id_]!r} was taken as text")
            lab.equal(grammar.is_terminated(), False, f"a token named {names[id_]!r} terminated a partial text")


@law("A14", "own-stops-take-the-way-on")
def own_stop_ids_that_take_the_only_way_on_make_a_dead_end(lab: Lab, sample: Sample) -> None:
    """Where every legal token is a stop id of the request and no text is complete, filling raises DeadEnd, and the
    grammar recovers by a rollback, a reset, and in a fork."""
    tokens, stops = _narrow(lab, sample)
    if not stops or set(tokens) & stops:
        return
    grammar = lab.new_grammar(sample.spec, stop_token_ids=sorted(stops))
    before_last = None
    for token in tokens:
        before_last = lab.state(grammar)
        lab.equal(grammar.accept_tokens("r", [token]), True, "text that is no stop id was refused")
    for _ in range(2):
        lab.raises(DeadEnd, lambda: lab.row(grammar), "a row without any token was filled")
        lab.demand(isinstance(grammar.error, DeadEnd), "a dead end is not remembered", "DeadEnd", grammar.error)
        lab.equal(grammar.accept_tokens("r", [tokens[0] if tokens else 0]), False, "a dead end accepted a token")
        lab.equal(grammar.validate_tokens(sorted(stops)[:1]), [], "a dead end called a token legal")
        answers = (grammar.is_terminated(), grammar.is_accepting())
        lab.equal(answers, (False, False), "a dead end looks like success")
    fork, other = grammar.fork(), grammar.fork()
    if before_last is not None:
        for dead in (grammar, fork):
            dead.rollback(1)
            lab.same(dead, before_last, "a dead end that was rolled back leads elsewhere")
    other.reset()
    lab.equal((other.error, other.num_accepted), (None, 0), "a reset does not clear a dead end")
    lab.equal(other.accept_tokens("r", tokens), True, "after a reset at a dead end a text was refused")


def _narrow(lab: Lab, sample: Sample) -> tuple[list[int], set[int]]:
    """The start of a text after which few tokens are legal and no text is complete; those tokens."""
    tokens = lab.encode(sample.longest)
    grammar = lab.new_grammar(sample.spec)
    for end, token in enumerate(tokens):
        # A canonical row may leave out other spellings, which are legal all the same (A12).
        legal = {id_ for id_ in range(lab.vocabulary.size) if grammar.raw.validate_tokens([id_])}
        # After the first token, so that there is a state to return to.
        if end and len(legal) <= 64 and not grammar.is_accepting() and not legal & set(tokens[:end]):
            return tokens[:end], legal
        grammar.accept_tokens("r", [token])
    return [], set()
