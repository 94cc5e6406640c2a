"""rollback: exact to every depth, over termination, and bounded by the history and by `max_rollback`."""

from __future__ import annotations

import functools
import gc
import itertools
import tracemalloc
from collections.abc import Sequence

from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends_conformance.laws.journal import RecordingGrammar
from grammar_backends_conformance.laws.lab import Lab, State
from grammar_backends_conformance.laws.law import EVERY_VOCABULARY, law
from grammar_backends_conformance.laws.samples import Sample

MOST_STEPS = 40
"""Of a longer text, the steps at which every depth is tried."""


def walked(
    lab: Lab, sample: Sample, max_rollback: int | None = None
) -> tuple[RecordingGrammar, list[int], list[State]]:
    """A grammar after its longest text and a stop token, taken one by one; those tokens; the state before each."""
    tokens = [*lab.encode(sample.longest)[:MOST_STEPS], lab.stop]
    grammar = lab.new_grammar(sample.spec, max_rollback=max_rollback)
    states = [lab.state(grammar)]
    for token in tokens:
        if token == lab.stop and not grammar.is_accepting():
            tokens.pop()  # the text was cut
            break
        lab.equal(grammar.accept_tokens("r", [token]), True, "a token of a text was refused")
        states.append(lab.state(grammar))
    return grammar, tokens, states


@law("A15", "exact-to-every-depth", vocabularies=EVERY_VOCABULARY)
def rollback_restores_every_state(lab: Lab, sample: Sample) -> None:
    """Rolling back n steps restores the state n steps ago bit by bit, for every n, and the same tokens lead back."""
    grammar, tokens, states = walked(lab, sample)
    last = len(tokens)
    depths = range(last + 1) if lab.is_small else sorted({*range(min(4, last)), last // 2, last})
    for depth in depths:
        grammar.rollback(depth)
        lab.same(grammar, states[last - depth], f"rolling back {depth} of {last} steps leads elsewhere")
        lab.equal(grammar.accept_tokens("r", tokens[last - depth :]), True, "tokens were refused after a rollback")
        lab.same(grammar, states[last], "the same tokens after a rollback lead elsewhere")


@law("A15", "step-by-step")
def rollback_one_by_one(lab: Lab, sample: Sample) -> None:
    """Steps taken back one by one pass through every earlier state, down to the start."""
    grammar, tokens, states = walked(lab, sample)
    for index in range(len(tokens) - 1, -1, -1):
        grammar.rollback(1)
        lab.same(grammar, states[index], f"rolling back to step {index} leads elsewhere")
    lab.raises(ValueError, lambda: grammar.rollback(1), "the start can be rolled back")


@law("A15", "blocks-and-singles-alike")
def rollback_into_the_middle_of_a_block(lab: Lab, sample: Sample) -> None:
    """Steps are tokens: a rollback may end inside a block that was accepted by one call."""
    _, tokens, states = walked(lab, sample)
    for depth in range(len(tokens) + 1):
        grammar = lab.new_grammar(sample.spec)
        lab.equal(grammar.accept_tokens("r", tokens), True, "a text was refused as one block")
        grammar.rollback(depth)
        lab.same(grammar, states[len(tokens) - depth], f"rolling back {depth} steps of a block leads elsewhere")


@law("A15", "branches-leave-no-trace")
def a_branch_that_was_rolled_back_leaves_no_trace(lab: Lab, sample: Sample) -> None:
    """After any branches were tried and rolled back, a grammar is what it would be without them."""
    branches = [*sample.texts, *sample.partial, *(text[:-1] for text in sample.wrong)]
    grammar, twin = lab.twins(sample)
    start = lab.state(grammar)
    for _ in range(2):
        for text in branches:
            count = grammar.num_accepted
            lab.equal(grammar.accept_tokens("r", lab.encode(text)), True, f"{text!r} was refused")
            lab.same(
                grammar, lab.state(lab.grammar(sample.spec, text)), f"{text!r} after other branches is another state"
            )
            if text in sample.texts:
                grammar.accept_tokens("r", [lab.stop])
            grammar.rollback(grammar.num_accepted - count)
            lab.same(grammar, start, f"{text!r} was rolled back and left a trace")
    lab.same_future(grammar, twin, [*lab.encode(sample.longest), lab.stop], "a branch changed what comes later")


@law("A15", "rows-of-other-branches-are-forgotten", vocabularies=EVERY_VOCABULARY)
def the_row_of_a_branch_is_not_shown_in_another(lab: Lab, sample: Sample) -> None:
    """A branch that is taken next after another one was rolled back has its own row: the one looked at before, however
    much alike the two places are, is not shown again."""
    branches = sorted({*sample.texts[:4], *sample.partial})
    rows = {text: lab.state(lab.grammar(sample.spec, text)) for text in branches}
    grammar = lab.new_grammar(sample.spec)
    for before, text in itertools.permutations(branches, 2):
        for each in (before, text):
            grammar.rollback(grammar.num_accepted)
            lab.equal(grammar.accept_tokens("r", lab.encode(each)), True, f"{each!r} was refused")
            lab.same(grammar, rows[each], f"{each!r} just after other branches is another state")


@law("A15", "after-refusals")
def refused_tokens_are_no_steps(lab: Lab, sample: Sample) -> None:
    """Refused and validated tokens between accepted ones are no steps: a rollback counts the accepted ones only."""
    _, tokens, states = walked(lab, sample)
    grammar = lab.new_grammar(sample.spec)
    for index, token in enumerate(tokens):
        grammar.accept_tokens("r", [*tokens[index:], max(lab.controls)])
        grammar.validate_tokens(tokens[index:])
        grammar.accept_tokens("r", [token])
        if not grammar.is_terminated():
            grammar.accept_tokens("r", [-1])
    for depth in range(1, len(tokens) + 1):
        grammar.rollback(1)
        lab.same(grammar, states[len(tokens) - depth], "a token that was refused is counted as a step")


@law("A16", "stop-is-one-step")
def the_stop_token_is_one_step(lab: Lab, sample: Sample) -> None:
    """Rolling back one step over a termination restores the state before the stop token, again and again."""
    for text in sample.texts:
        grammar = lab.grammar(sample.spec, text)
        before = lab.state(grammar)
        for stop in (*lab.vocabulary.stop_ids, lab.stop):
            lab.equal(grammar.accept_tokens("r", [stop, stop]), True, "a stop token after a text was refused")
            lab.equal(grammar.is_terminated(), True, "a stop token does not terminate")
            grammar.rollback(1)
            lab.same(grammar, before, "rolling back the stop token leads elsewhere")
    if sample.language.growing:
        short, longer = sample.language.growing
        grammar = lab.grammar(sample.spec, short)
        grammar.accept_tokens("r", [lab.stop])
        grammar.rollback(1)
        rest = [*lab.encode(longer[len(short) :]), lab.stop]
        lab.equal(grammar.accept_tokens("r", rest), True, "after a rolled back stop token the text cannot go on")


@law("A16", "however-it-arrives")
def stop_tokens_are_one_step_however_they_arrive(lab: Lab, sample: Sample) -> None:
    """Alone, at the end of a block or in one block with the whole text: a stop token is the last step, and only one."""
    for text in sample.texts:
        tokens = lab.encode(text)
        before_last = lab.state(lab.grammar(sample.spec, text))
        start = lab.state(lab.new_grammar(sample.spec))
        for cut in {0, len(tokens) // 2, len(tokens)}:
            grammar = lab.new_grammar(sample.spec)
            grammar.accept_tokens("r", tokens[:cut])
            block = [*tokens[cut:], lab.stop]
            lab.equal(grammar.validate_tokens(block), block, "a text with its stop token is not all legal")
            lab.equal(grammar.accept_tokens("r", block), True, "a text with its stop token was refused")
            lab.equal((grammar.num_accepted, grammar.is_terminated()), (len(tokens) + 1, True), "the stop is no step")
            grammar.rollback(1)
            lab.same(grammar, before_last, "the stop token is not the last step")
            grammar.rollback(len(tokens))
            lab.same(grammar, start, "the steps before the stop token are not the tokens of the text")
            grammar.accept_tokens("r", [*tokens, lab.stop])
            grammar.rollback(len(tokens) + 1)
            lab.same(grammar, start, "a rollback over the stop token and further leads elsewhere")


@law("A17", "misuse-raises-and-changes-nothing")
def rollback_misuse_raises(lab: Lab, sample: Sample) -> None:
    """Rolling back more than the history, or a negative number, raises ValueError and changes nothing."""
    for text, terminated in (("", False), (sample.longest, False), (sample.texts[0], True)):
        grammar, twin = lab.twins(sample, text)
        if terminated:
            grammar.accept_tokens("r", [lab.stop])
            twin.accept_tokens("r", [lab.stop])
        before = lab.state(grammar)
        for steps in (before.num_accepted + 1, before.num_accepted + 2, 10**9, -1, -2, -(10**9)):
            _demand_refused_rollback(lab, grammar, steps)
            lab.same(grammar, before, f"a refused rollback of {steps} steps changed the grammar")
        for g in (grammar, twin):
            g.rollback(before.num_accepted)
        lab.same_future(grammar, twin, lab.encode(sample.texts[0]), "refused rollbacks changed what comes later")


def _demand_refused_rollback(lab: Lab, grammar: RecordingGrammar, steps: int) -> None:
    lab.raises(ValueError, lambda: grammar.rollback(steps), f"a rollback of {steps} steps was not refused")


@law("A17", "max-rollback-is-the-limit")
def rollback_reaches_max_rollback_and_no_further(lab: Lab, sample: Sample) -> None:
    """With `max_rollback` exactly so many steps can be taken back, also over the stop token, and no more at once or
    in pieces."""
    for limit in (0, 1, 2, 5):
        grammar, tokens, states = walked(lab, sample, max_rollback=limit)
        lab.equal(grammar.max_rollback, limit, "a grammar does not say the limit it was made with")
        last = len(tokens)
        reach = min(limit, last)
        _demand_refused_rollback(lab, grammar, reach + 1)
        lab.same(grammar, states[last], "a refused rollback changed the grammar")
        for done in range(1, reach + 1):
            grammar.rollback(1)
            lab.same(grammar, states[last - done], f"step {done} back within max_rollback={limit} leads elsewhere")
        if limit < last:
            _demand_refused_rollback(lab, grammar, 1)
        lab.equal(grammar.accept_tokens("r", tokens[last - reach :]), True, "tokens were refused after a rollback")
        grammar.rollback(reach)
        lab.same(grammar, states[last - reach], f"rolling back {reach} within max_rollback={limit} leads elsewhere")


@law("A17", "limit-moves-with-the-history")
def the_limit_moves_with_the_history(lab: Lab, sample: Sample) -> None:
    """Steps that were taken back do not come back into reach: the earliest state that can be reached only moves on."""
    tokens = lab.encode(sample.longest)[:MOST_STEPS]
    limit = 2
    grammar = lab.new_grammar(sample.spec, max_rollback=limit)
    floor = 0
    for end in range(1, len(tokens) + 1):
        grammar.accept_tokens("r", [tokens[end - 1]])
        floor = max(floor, end - limit)
        lab.equal(grammar.num_accepted, end, "an accepted token is one step")
        if end % 3 == 0:
            grammar.rollback(end - floor)
            if floor:
                _demand_refused_rollback(lab, grammar, 1)
            lab.equal(grammar.accept_tokens("r", tokens[floor:end]), True, "tokens were refused after a rollback")


@law("A17", "negative-limit-is-refused")
def a_negative_max_rollback_is_refused(lab: Lab) -> None:
    """`max_rollback` must not be negative: ValueError."""
    compiled = lab.compile(lab.samples[0].spec)
    lab.raises(ValueError, lambda: compiled.new_grammar(max_rollback=-1), "max_rollback=-1 was taken")


@law("A17", "long-refused-blocks-are-undone")
def a_refused_block_longer_than_the_limit_is_undone(lab: Lab, sample: Sample) -> None:
    """A refused block is undone, and a validated one leaves no trace, however many tokens beyond `max_rollback`."""
    loop = sample.language.loop
    text = sample.longest if loop is None else loop.text(100)
    tokens = lab.encode(text)
    start = len(lab.encode(loop.head)) if loop else 0
    for limit in (0, 1):
        grammar = lab.new_grammar(sample.spec, max_rollback=limit)
        lab.equal(grammar.accept_tokens("r", tokens[:start]), True, f"the start of {text[:40]!r} was refused")
        before = lab.state(grammar)
        rest = tokens[start:]
        for _ in range(2):
            lab.equal(grammar.accept_tokens("r", [*rest, max(lab.controls)]), False, "a control token was accepted")
            lab.equal(grammar.accept_tokens("r", [*rest, -1]), False, "a negative id was accepted")
            lab.equal(grammar.validate_tokens([*rest, lab.stop]), [*rest, lab.stop], "a text is not all legal")
            lab.same(grammar, before, f"a long block that was refused under max_rollback={limit} left a trace")
        lab.equal(grammar.accept_tokens("r", [*rest, lab.stop]), True, "a text was refused after that")


@law("A27", "speculation-window-fits")
def a_speculation_window_and_its_stop_token_fit(lab: Lab, sample: Sample) -> None:
    """With `max_rollback` of the drafts and one more, a window of drafts and a stop token can be taken back whole."""
    tokens = lab.encode(sample.longest)
    for drafts in {1, len(tokens) // 2, len(tokens)}:
        grammar = lab.new_grammar(sample.spec, max_rollback=drafts + 1)
        grammar.accept_tokens("r", tokens[: len(tokens) - drafts])
        before = lab.state(grammar)
        window = [*tokens[len(tokens) - drafts :], lab.stop]
        for _ in range(3):
            lab.equal(grammar.accept_tokens("r", window), True, "a window of drafts was refused")
            grammar.rollback(len(window))
            lab.same(grammar, before, "a window of drafts was taken back and left a trace")


@law("A27", "unbounded-reaches-the-start")
def unbounded_rollback_reaches_the_start(lab: Lab, sample: Sample) -> None:
    """Without `max_rollback` the whole of a long history can be taken back."""
    loop = sample.language.loop
    tokens = lab.encode(loop.text(400) if loop else sample.longest)
    grammar = lab.new_grammar(sample.spec)
    lab.equal(grammar.max_rollback, None, "a grammar without a limit says that it has one")
    start = lab.state(grammar)
    lab.equal(grammar.accept_tokens("r", tokens), True, "a long text was refused")
    end = lab.state(grammar)
    grammar.rollback(len(tokens))
    lab.same(grammar, start, f"rolling back {len(tokens)} steps does not lead to the start")
    lab.equal(grammar.accept_tokens("r", tokens), True, "a long text was refused after it was rolled back")
    lab.same(grammar, end, "the same long text leads elsewhere")


BYTES_PER_TOKEN = 24
"""Growth that is allowed for each token of a bounded grammar. A list of its ids, from which an engine can be led
back out of a dead end, is bounded by a third of that; states kept for a rollback are not."""


@law("A33", "bounded-memory", vocabularies=("byte",))
def a_bounded_grammar_does_not_grow_with_its_output(lab: Lab) -> None:
    """Under `max_rollback` the memory of a grammar does not grow with its output beyond the ids themselves."""
    endless = [sample for sample in lab.samples if sample.language.loop and sample.language.loop.most > 10**6]
    for sample in endless[:3]:
        loop = sample.language.loop
        body = [] if loop is None else lab.encode(loop.body * 50)
        grammar = lab.compile(sample.spec).new_grammar(max_rollback=4)
        for block in (lab.encode("" if loop is None else loop.head), body, body):
            lab.equal(grammar.accept_tokens("r", block), True, "an endless text was refused")
        grown = _growth(grammar, body, 60)
        bound = BYTES_PER_TOKEN * 60 * len(body) + 20_000
        lab.demand(grown < bound, "memory grows with the output under max_rollback", f"< {bound} bytes", grown)
        grammar.rollback(4)
        lab.raises(ValueError, functools.partial(grammar.rollback, 1), "more than max_rollback was taken back")


def _growth(grammar: StructuredOutputGrammar, block: Sequence[int], times: int) -> int:
    accept = grammar.accept_tokens
    gc.collect()
    tracemalloc.start()
    try:
        accept("r", block)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            accept("r", block)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
