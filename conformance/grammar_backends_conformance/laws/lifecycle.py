"""A grammar's life: the protocol, reset, forks, errors, reads in between, and threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from grammar_backends.contract import StructuredOutputGrammar, allocate_bitmask
from grammar_backends.errors import UnsupportedFeature
from grammar_backends_conformance.laws.accept import stages
from grammar_backends_conformance.laws.journal import RecordingGrammar
from grammar_backends_conformance.laws.lab import Lab, State
from grammar_backends_conformance.laws.law import law
from grammar_backends_conformance.laws.samples import Sample

Answer = TypeVar("Answer")


@law("A0", "answers-have-their-types")
def answers_have_the_declared_types(lab: Lab, sample: Sample) -> None:
    """A grammar has every method of the protocol, and its answers are of the declared types in every state."""
    for text, grammar in stages(lab, sample, max_rollback=2):
        lab.demand(
            isinstance(grammar.raw, StructuredOutputGrammar), "methods of the protocol are missing", "all", grammar.raw
        )
        for terminated in (False, True):
            if terminated and not grammar.accept_tokens("r", [lab.stop]):
                lab.demand(text not in sample.texts, "the stop token after a text was refused", True, False)
                continue
            tokens = [max(lab.controls)]
            bools = (
                grammar.accept_tokens("r", tokens),
                grammar.accept_tokens("r", []),
                grammar.is_terminated(),
                grammar.is_accepting(),
                grammar.fill_bitmask(allocate_bitmask(1, lab.vocabulary.width), 0),
            )
            lab.equal([type(answer) for answer in bools], [bool] * 5, "an answer is no bool")
            numbers = (grammar.num_accepted, grammar.max_rollback)
            lab.equal([type(number) for number in numbers], [int] * 2, "a count is no int")
            lab.equal(type(grammar.validate_tokens(tokens)), list, "what validation gives is no list")
            lab.equal(grammar.error, None, "there is an error where nothing failed")
            lab.equal(grammar.rollback(0), None, "rollback returns something")  # type: ignore[func-returns-value]


@law("A18", "reset-is-the-start")
def reset_returns_to_the_initial_state(lab: Lab, sample: Sample) -> None:
    """A reset clears history, counters and termination, in every state: what follows is what follows a new grammar."""
    for text in (*sample.texts, *sample.partial):
        for terminated in (False, True) if text in sample.texts else (False,):
            grammar, twin = lab.grammar(sample.spec, text), lab.new_grammar(sample.spec)
            if terminated:
                lab.equal(grammar.accept_tokens("r", [lab.stop]), True, "the stop token after a text was refused")
            grammar.accept_tokens("r", [-1])
            lab.state(grammar)  # what it remembers of this is to be forgotten too
            for _ in range(2):
                grammar.reset()
                lab.same(grammar, lab.state(twin), f"a reset after {text!r} does not lead to the start")
                lab.raises(ValueError, lambda: grammar.rollback(1), "a history was left behind by a reset")  # noqa: B023
            tokens = [*lab.encode(sample.longest), lab.stop]
            lab.same_future(grammar, twin, tokens, f"a reset after {text!r} changed what comes later")


@law("A18", "reset-keeps-the-request")
def reset_keeps_stop_ids_and_limit(lab: Lab, sample: Sample) -> None:
    """After a reset, and in a fork, a request's stop ids and rollback limit are what they were."""
    control = max(lab.controls)
    grammar = lab.grammar(sample.spec, sample.longest, stop_token_ids=[control], max_rollback=1)
    grammar.accept_tokens("r", [control])
    grammar.reset()
    for g in (grammar, grammar.fork()):
        tokens = lab.encode(sample.longest)
        g.accept_tokens("r", tokens[:1])
        g.rollback(len(tokens[:1]))  # the first step is in reach, however long the history was before the reset
        lab.equal(g.accept_tokens("r", tokens), True, "a text was refused after a reset")
        lab.equal(lab.allowed(g) & lab.vocabulary.special_ids, {control}, "the stop ids of the request were lost")
        lab.equal(g.accept_tokens("r", [lab.stop]), False, "the vocabulary's stop id came back")
        lab.equal(g.accept_tokens("r", [control]), True, "the request's stop id was refused")
        lab.equal(g.max_rollback, 1, "the rollback limit was lost")
        lab.raises(ValueError, lambda g=g: g.rollback(2), "more than max_rollback was taken back")  # type: ignore[misc]
        g.rollback(1)
        lab.equal(g.is_terminated(), False, "rolling back a termination leaves it")


@law("A19", "refusal-is-no-success")
def an_illegal_token_is_never_followed_by_success(lab: Lab, sample: Sample) -> None:
    """After refused tokens nothing looks like success: a second illegal token and an early stop are refused as well."""
    for text in sample.partial:
        grammar, twin = lab.twins(sample, text)
        for id_ in (*sorted(lab.controls)[:4], -1, lab.vocabulary.size, 2**40):
            for block in ([id_], [id_], [id_, lab.stop], [lab.stop]):
                lab.equal(grammar.accept_tokens("r", block), False, "after a refused token an illegal one was accepted")
                lab.equal(grammar.is_terminated(), False, "refused tokens terminated the grammar")
        lab.equal(grammar.error, None, "refused tokens led to an error")
        lab.same(grammar, lab.state(twin), "refused tokens changed the grammar")


@law("A23", "fork-is-equal-and-independent")
def a_fork_has_the_state_and_history_and_is_independent(lab: Lab, sample: Sample) -> None:
    """A fork is in the same state with the same history; from then on neither notices the other, whatever it does."""
    tokens = [*lab.encode(sample.longest), lab.stop]
    for cut in {0, len(tokens) // 2, len(tokens) - 1, len(tokens)}:
        grammar, twin = lab.new_grammar(sample.spec), lab.new_grammar(sample.spec)
        grammar.accept_tokens("r", tokens[:cut])
        twin.accept_tokens("r", tokens[:cut])
        state, start = lab.state(grammar), lab.state(lab.new_grammar(sample.spec))
        for still, moving in ((grammar, grammar.fork()), (grammar.fork(), grammar)):
            lab.same(still, state, "a fork is in another state")
            lab.same(moving, state, "a fork is in another state")
            moving.accept_tokens("r", tokens[cut:])
            lab.same(still, state, "a step of one reached the other")
            moving.rollback(len(tokens))
            lab.same(moving, start, "a fork cannot take back the history that it shares")
            lab.same(still, state, "a rollback of one reached the other")
            moving.reset()
            lab.same(still, state, "a reset of one reached the other")
            lab.same_future(still, twin, tokens[cut:], "a fork goes on differently")
            twin.rollback(len(tokens) - cut)
            grammar.reset()
            grammar.accept_tokens("r", tokens[:cut])


@law("A23", "fork-after-rollback")
def a_fork_of_a_grammar_that_was_rolled_back_is_where_that_is(lab: Lab, sample: Sample) -> None:
    """A fork taken after a rollback, also over a stop token and under stop ids of the request, is where the grammar is
    now: what was taken back is gone in both."""
    tokens = lab.encode(sample.longest)
    other = max(lab.controls)
    for stops in (lab.vocabulary.stop_ids, (other,)):
        for back in {1, len(tokens) // 2 + 1, len(tokens) + 1}:
            grammar = lab.grammar(sample.spec, sample.longest, stop_token_ids=stops)
            lab.equal(grammar.accept_tokens("r", stops[:1]), True, "the stop token after a text was refused")
            ended = grammar.fork()
            lab.same(ended, lab.state(grammar), "a fork of a terminated grammar is in another state")
            grammar.rollback(back)
            rest = [*tokens, stops[0]][len(tokens) + 1 - back :]
            twin = lab.new_grammar(sample.spec, stop_token_ids=stops)
            twin.accept_tokens("r", tokens[: len(tokens) + 1 - back])
            lab.same_future(grammar.fork(), twin.fork(), rest, "a fork after a rollback is in another state")
            lab.same(grammar, lab.state(twin), "a fork that went on reached the grammar")


@law("A23", "forks-of-forks")
def forks_of_forks_go_their_own_ways(lab: Lab, sample: Sample) -> None:
    """Forks of forks each keep a text of their own, as in a beam search: every one ends as if it were alone."""
    texts = [*sample.texts, *sample.partial]
    root = lab.new_grammar(sample.spec)
    beams = [(text, lab.encode(text), root.fork().fork()) for text in texts]
    for index in range(max(len(tokens) for _, tokens, _ in beams)):
        for _, tokens, beam in beams:
            beam.accept_tokens("r", tokens[index : index + 1])
    for text, tokens, beam in beams:
        alone = lab.new_grammar(sample.spec)
        for token in tokens:
            alone.accept_tokens("r", [token])
        lab.same(beam, lab.state(alone), f"a beam with {text!r} differs from a grammar alone")
    lab.same(root, lab.state(lab.new_grammar(sample.spec)), "the root of a beam search was moved")


@law("A23", "fork-of-a-bounded-grammar")
def a_fork_of_a_bounded_grammar_has_its_limit(lab: Lab, sample: Sample) -> None:
    """A fork can take back as many steps as the grammar could, and no more, each without the other noticing."""
    tokens = lab.encode(sample.longest)
    grammar = lab.new_grammar(sample.spec, max_rollback=2)
    states = [lab.state(grammar)]
    for token in tokens:
        grammar.accept_tokens("r", [token])
        states.append(lab.state(grammar))
    reach = min(2, len(tokens))
    fork = grammar.fork()
    lab.raises(ValueError, lambda: fork.rollback(reach + 1), "a fork takes back more than max_rollback")
    fork.rollback(reach)
    lab.same(fork, states[-1 - reach], "a fork of a bounded grammar rolls back to another state")
    lab.same(grammar, states[-1], "a rollback of a fork reached the grammar")
    fork.accept_tokens("r", tokens[len(tokens) - reach :])
    grammar.rollback(reach)
    lab.same(grammar, states[-1 - reach], "a fork spoiled the rollback of a bounded grammar")
    lab.same(fork, states[-1], "a rollback reached a fork")
    early = lab.new_grammar(sample.spec, max_rollback=2).fork()
    early.accept_tokens("r", tokens)
    lab.equal(early.max_rollback, 2, "a fork does not say the limit that it has")
    lab.raises(ValueError, lambda: early.rollback(3), "a fork takes back more than max_rollback of its own steps")
    early.rollback(reach)
    lab.same(early, states[-1 - reach], "a fork that went on rolls back to another state")


@law("A24", "parallel-equals-serial")
def grammars_in_parallel_threads_give_the_serial_results(lab: Lab) -> None:
    """Different grammars in parallel threads, also of one compiled grammar, give what they give one after another."""
    samples = lab.samples[:4]
    compiled = [lab.compile_anew(sample.spec) for sample in samples]  # with nothing computed before

    def walk(index: int) -> list[State]:
        states = []
        for text in samples[index].texts:
            grammar = compiled[index].new_grammar()
            for token in [*lab.encode(text), lab.stop]:
                states.append(lab.state(grammar))
                grammar.validate_tokens([token, token])
                grammar.accept_tokens("r", [token])
            grammar.rollback(grammar.num_accepted // 2)
            states.append(lab.state(grammar))
            states.append(lab.state(grammar.fork()))
        return states

    order = [*range(len(samples))] * 2
    parallel = _in_threads([functools.partial(walk, index) for index in order])
    for index, states in zip(order, parallel, strict=True):
        lab.equal(states, walk(index), f"in parallel threads {samples[index].name} went through other states")


@law("A24", "parallel-compilation")
def compiling_in_parallel_threads_gives_the_same_grammars(lab: Lab) -> None:
    """Compiling in parallel threads, also the same spec, gives grammars like those that were compiled alone."""
    specs = [sample.spec for sample in lab.samples[:3]] * 2
    made = _in_threads([functools.partial(lab.compile_anew, spec) for spec in specs])
    for spec, compiled in zip(specs, made, strict=True):
        expected = lab.state(lab.new_grammar(spec))
        lab.same(compiled.new_grammar(), expected, "compiled in a thread, a grammar is another")


def _in_threads(tasks: list[Callable[[], Answer]]) -> list[Answer]:
    barrier = threading.Barrier(len(tasks))

    def run(task: Callable[[], Answer]) -> Answer:
        barrier.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, tasks))


@law("A25", "reads-change-nothing")
def reads_leave_the_next_result_of_everything_unchanged(lab: Lab, sample: Sample) -> None:
    """Filling, validating, forking and asking, in any number and order, leave every later answer as it was."""
    for text in sample.texts:
        grammar, twin = lab.twins(sample)
        for token in [*lab.encode(text), lab.stop]:
            _read_everything(lab, grammar)
            lab.same(grammar, lab.state(twin), "reads changed the grammar")
            answers = [g.accept_tokens("r", [token]) for g in (grammar, twin)]
            lab.equal(answers, [True, True], f"a token of {text!r} was refused after reads")
        tokens = lab.encode(text)
        for steps in (1, len(tokens) // 2):
            _read_everything(lab, grammar)
            grammar.rollback(steps)
            unread = lab.new_grammar(sample.spec)  # the twin was read too, for its states
            unread.accept_tokens("r", tokens[: grammar.num_accepted])
            lab.same(grammar, lab.state(unread), "reads changed what a rollback leads to")


def _read_everything(lab: Lab, grammar: RecordingGrammar) -> None:
    bitmask = allocate_bitmask(2, lab.vocabulary.width)
    grammar.fill_bitmask(bitmask, 1)
    for _ in range(2):
        grammar.validate_tokens([*lab.encode('a"b}'), lab.stop])
        grammar.validate_tokens([-1, 2**40])
        grammar.validate_tokens(lab.encode("ab") * 3)
    grammar.is_accepting()
    grammar.is_terminated()
    grammar.fill_bitmask(bitmask, 0)
    fork = grammar.fork()
    fork.accept_tokens("r", lab.encode("a"))
    fork.accept_tokens("r", [lab.stop])
    for ask in (grammar.forced_tokens, grammar.forced_bytes):
        try:
            ask()
        except UnsupportedFeature:
            continue
    lab.demand(np.array_equal(bitmask[0], bitmask[1]), "reads between two fills changed the row", "one row", "two")
