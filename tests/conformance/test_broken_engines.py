"""The suite is tested by breaking things: an engine that breaks a rule fails a law of that rule, one that breaks none
passes all.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from broken_engines import right
from broken_engines.faults import EVERYTHING, FAULTS, TEXT, Fault, spec_of

import grammar_backends
from grammar_backends import PluginHost
from grammar_backends.contract import BackendSpec
from grammar_backends.plugins import hookimpl
from grammar_backends_conformance import run_suite
from grammar_backends_conformance.laws import LAWS
from grammar_backends_conformance.laws.law import SMALL_VOCABULARIES
from grammar_backends_conformance.reports.report import SuiteReport

SLOW = {"A25/random-lives", "A33/bounded-memory"}
"""Laws that take seconds, the former because it shrinks what it finds. A plainer law of the rule is enough."""

ENDS = [right.Grammar, right.Matching]
"""The right engine with semantics of its own, and under the layer's."""


def globs(laws: Collection[str]) -> list[str]:
    """The checks of these laws, but for the slow ones, and for those over data, which are about cases and not rules."""
    return [f"{law}@*" for law in laws if not law.startswith("case/") and (law not in SLOW or len(laws) == 1)]


@pytest.mark.parametrize("part", ENDS)
def test_an_engine_that_breaks_no_rule_passes_the_core(part: type[right.Part]) -> None:
    core = [law for law in LAWS.values() if law.profile == "core" and {*SMALL_VOCABULARIES} & {*law.vocabularies}]
    only = [f"{law.id}@{law.vocabularies[-1] if len(law.vocabularies) < 2 else 'adversarial'}*" for law in core]
    only = [glob.replace("*", ":runs-regex") if glob.startswith("A25/random-lives") else glob for glob in only]
    report = run_suite(spec_of(part, TEXT), vocabularies=SMALL_VOCABULARIES, only=only, isolate=False)
    assert report.ok, str(report)
    assert {line.check.law for line in report.lines} == {law.id for law in core}


@pytest.mark.parametrize("part", ENDS)
@pytest.mark.parametrize("profile", sorted({law.profile for law in LAWS.values()} - {"core"}))
def test_what_it_declares_works_and_what_it_does_not_is_refused(part: type[right.Part], profile: str) -> None:
    report = run_suite(
        spec_of(part, EVERYTHING), profile=profile, vocabularies=["byte"], only=globs(LAWS), isolate=False
    )
    assert not report.failures, str(report)


@functools.cache
def report_of(fault: Fault) -> SuiteReport:
    laws = [law.id for law in LAWS.values() if law.rule == fault.rule]
    return run_suite(
        fault.spec, profile=fault.profile, vocabularies=[fault.vocabulary], only=globs(laws), isolate=False
    )


named = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.part.__name__}")


@named
def test_what_breaks_a_rule_fails_a_law_of_that_rule(fault: Fault) -> None:
    report = report_of(fault)
    broken = [line for line in report.failures if line.result.outcome == "fail"]
    assert broken, f"no law of {fault.rule} notices: {fault.part.__doc__}\n{report}"


@named
def test_a_failure_says_all_that_is_needed_to_see_it(fault: Fault) -> None:
    line = next(line for line in report_of(fault).failures if line.result.outcome == "fail")
    evidence = line.result.evidence
    assert evidence is not None
    assert line.rule == fault.rule
    assert all((line.check.id, line.statement, line.result.detail, evidence.calls))
    assert len(evidence.tokens) == len(evidence.token_bytes)
    assert evidence.expected != evidence.got
    compile("\n".join(evidence.calls), "calls", "exec")
    assert line.command in str(line)


REPEATED = ("KeepsTheLegalPart", "ValidatesOneTokenOnly", "RollsBackOneTooMany", "ForkSharesItsStates", "StopsAnywhere")


@pytest.mark.parametrize("name", REPEATED)
def test_the_calls_of_a_failure_show_it_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(fault for fault in FAULTS if fault.part.__name__ == name)
    line = next(line for line in report_of(fault).failures if line.result.outcome == "fail")
    assert line.result.evidence is not None
    script = "\n".join(line.result.evidence.calls)
    answers = []
    for part in (fault.part, right.Grammar):
        _register(spec_of(part, fault.capabilities), monkeypatch)
        answers.append(_answers(script))
    assert answers[0] != answers[1]


def _answers(script: str) -> list[str]:
    """What the calls of a script answer."""
    namespace: dict[str, Any] = {}
    answers = []
    for statement in ast.parse(script).body:
        source = ast.unparse(statement)
        if isinstance(statement, ast.Expr):
            answers.append(repr(eval(source, namespace)))
        else:
            exec(source, namespace)
    return answers


def _register(spec: BackendSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugin:
        @hookimpl
        def grammar_backends_register_backends(self) -> list[BackendSpec]:
            return [spec]

    host = PluginHost(autoload=False, plugins={"broken": Plugin()})
    load = functools.partial(grammar_backends.load_backend, host=host)
    monkeypatch.setattr(grammar_backends, "load_backend", load)


NOT_BROKEN = {"A32"}
"""A recogniser has no state that no text leads on from; what hides a dead end of the vocabulary breaks A14."""


def test_every_rule_of_a_grammar_is_broken_by_some_engine() -> None:
    rules = {law.rule for law in LAWS.values() if law.profile == "core" and law.rule.startswith("A")}
    assert rules - {fault.rule for fault in FAULTS} == NOT_BROKEN


def test_every_faulty_part_is_listed() -> None:
    assert {fault.part for fault in FAULTS} == {
        part for part in _parts(right.Part) if part.__module__ not in (right.__name__, __name__)
    }


def _parts(part: type[right.Part]) -> Iterator[type[right.Part]]:
    yield part
    for more in part.__subclasses__():
        yield from _parts(more)
