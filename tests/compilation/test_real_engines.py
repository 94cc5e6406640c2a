"""The manager over the real engines, and what these do with specs that the front end would not let pass (D9, E6)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from grammar_backends import GrammarSpec, PluginHost, Vocabulary, load_backend
from grammar_backends.compilation import FailureKind, GrammarManager, ManagerLimits
from grammar_backends.contract import CompiledGrammar
from grammar_backends.selection import Policy

LIMITS = ManagerLimits(compile_seconds=5.0, compile_megabytes=2048.0, workers=2)

SPECS = {
    "schema": GrammarSpec.json_schema({"type": "array", "items": {"type": "boolean"}}),
    "regex": GrammarSpec.regex("[a-z]{1,8}[0-9]"),
    "choice": GrammarSpec.choice(["yes", "no"]),
}


@pytest.fixture(scope="module")
def deep_host(host: PluginHost) -> PluginHost:
    """Every installed plugin, and the real engines below the front end; needs the path that `host` sets."""
    import deep_engines

    return PluginHost(plugins={"deep": deep_engines})


@pytest.mark.parametrize("backend", ["xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_e6_a_grammar_from_a_process_allows_what_one_compiled_here_does(vocabulary: Vocabulary, backend: str) -> None:
    direct = load_backend(backend, vocabulary)
    with GrammarManager(vocabulary, backend=backend, isolation="process", limits=ManagerLimits(workers=1)) as manager:
        tickets = {name: manager.submit(name, spec) for name, spec in SPECS.items()}
        for name, text in (("schema", b"[true]"), ("regex", b"abc7"), ("choice", b"no")):
            assert tickets[name].wait(300.0)
            grammar, expected = tickets[name].new_grammar(), direct.compile_grammar(SPECS[name]).new_grammar()
            for token in text:
                assert grammar.validate_tokens([token]) == expected.validate_tokens([token]) == [token]
                assert grammar.accept_tokens("r", [token]) == expected.accept_tokens("r", [token])
            assert grammar.is_accepting() == expected.is_accepting() is True
            assert tickets[name].provenance.isolation == "process"


@pytest.mark.parametrize("backend", ["xgrammar", "outlines"])
@pytest.mark.parametrize("threads", [1, 3])
def test_e19_what_a_backend_of_its_own_dumps_a_manager_reads(
    vocabulary: Vocabulary, backend: str, threads: int
) -> None:
    compiling = load_backend(backend, vocabulary)
    limits = ManagerLimits(compile_threads=threads, workers=1)
    with GrammarManager(vocabulary, isolation="thread", limits=limits) as manager:
        for name, spec in SPECS.items():
            artifact = compiling.dump_grammar(compiling.compile_grammar(spec))
            ticket = manager.submit(name, spec, backend, artifact=artifact)
            assert ticket.wait(60.0)
            assert ticket.failure is None
            assert ticket.provenance.source == "artifact"


def test_d9_e6_pathological_specs_cost_their_own_tickets_while_a_hundred_others_finish(
    vocabulary: Vocabulary, deep_host: PluginHost, choice: Callable[..., GrammarSpec]
) -> None:
    order = Policy(order=("xgrammar", "guidance", "outlines"))
    with GrammarManager(vocabulary, host=deep_host, policy=order, limits=LIMITS) as manager:
        assert manager.wait_warm(300.0)
        bad = [
            manager.submit("deep", choice("deep"), "deep-xgrammar"),
            manager.submit("arrays", choice("arrays"), "deep-outlines"),
        ]
        others = [manager.submit("other", choice("yes", f"no {n}")) for n in range(100)]
        for ticket in bad:
            assert ticket.wait(300.0)
            assert ticket.failure.kind in (FailureKind.TIMEOUT, FailureKind.MEMORY_LIMIT), ticket
        for ticket in others:
            assert ticket.wait(300.0)
            assert isinstance(ticket.outcome, CompiledGrammar), ticket.failure
        assert manager.state.processes.lost == 2
        assert manager.shutdown(60.0)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_d9_the_front_end_refuses_such_nesting_before_any_engine_sees_it(
    vocabulary: Vocabulary, deep_host: PluginHost
) -> None:
    import deep_engines

    with GrammarManager(vocabulary, host=deep_host, isolation="thread", limits=LIMITS) as manager:
        deep = manager.submit("deep", GrammarSpec.json_schema(deep_engines.nested_arrays(400)))
        arrays = manager.submit("arrays", GrammarSpec.json_schema(deep_engines.nested_arrays(32)), "outlines")
        for ticket in (deep, arrays):
            assert ticket.wait(300.0)
            assert ticket.failure.kind.is_client_error


def test_c2_the_automatic_choice_compiles_where_the_chosen_backend_is_safe(vocabulary: Vocabulary) -> None:
    order = Policy(order=("guidance", "xgrammar"))
    with GrammarManager(vocabulary, policy=order, limits=ManagerLimits(workers=1)) as manager:
        schema, grammar = manager.submit("a", SPECS["schema"]), manager.submit("b", GrammarSpec.grammar('root ::= "a"'))
        for ticket, isolation in ((schema, "thread"), (grammar, "process")):
            assert ticket.wait(300.0)
            assert (ticket.state, ticket.provenance.backend) == ("ready", "guidance")
            assert ticket.provenance.isolation == isolation


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # it is what is tested
def test_e5_a_forked_child_compiles_with_the_real_engines_and_the_parent_goes_on(vocabulary: Vocabulary) -> None:
    order = Policy(order=("guidance", "xgrammar"))
    with GrammarManager(vocabulary, policy=order, limits=ManagerLimits(workers=1)) as manager:
        warm = manager.submit("warm", SPECS["regex"], "xgrammar")
        assert warm.wait(300.0)
        pid = os.fork()
        if not pid:
            tickets = [manager.submit("child", spec, name) for spec in SPECS.values() for name in order.order or ()]
            ready = all(ticket.wait(300.0) and ticket.new_grammar() for ticket in (warm, *tickets))
            os._exit(0 if ready and manager.shutdown(60.0) else 1)
        tickets = [manager.submit("parent", spec, name) for spec in SPECS.values() for name in order.order or ()]
        assert all(ticket.wait(300.0) and ticket.new_grammar() for ticket in tickets)
        assert os.waitpid(pid, 0)[1] == 0
        assert manager.state.processes.lost == 0
