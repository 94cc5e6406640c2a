"""`run_suite` in the caller's own process, for backends that exist nowhere else; and plans."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grammar_backends import PluginHost
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends_conformance import run_suite
from grammar_backends_conformance.laws import LAWS, Lab, Unsupported, law
from grammar_backends_conformance.laws.check import SURVEY, Check
from grammar_backends_conformance.suite.plan import Plan, PlanError, every_check, parse_check, profiles

TOYS = Path(__file__).parents[1] / "comparison" / "toys"
SPEC = BackendSpec("local", "local_toys:Engine", API_VERSION, Capabilities(frozenset({GrammarKind.CHOICE})))
ONLY = "A1/atomic-accept@byte:word-choice"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module that only this process has."""
    monkeypatch.syspath_prepend(TOYS)
    import toy_engines

    module = types.ModuleType("local_toys")
    module.Engine = toy_engines.Right  # type: ignore[attr-defined]  # that is how a module gets a name
    module.toys = toy_engines  # type: ignore[attr-defined]  # as above
    monkeypatch.setitem(sys.modules, "local_toys", module)
    yield module
    sys.modules.pop("toy_engines")


@pytest.fixture
def own_laws() -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    before = dict(LAWS)
    yield
    LAWS.clear()
    LAWS.update(before)


@pytest.mark.usefixtures("local")
def test_a_backend_that_only_this_process_has_can_be_judged() -> None:
    report = run_suite(SPEC, only=ONLY, isolate=False)
    assert report.ok, str(report)
    assert [line.check.id for line in report.lines] == [ONLY]
    assert report.backends["local"]["version"] == "1.0"
    assert report.counts().masks > 0


def test_a_broken_one_is_caught(local: types.ModuleType) -> None:
    class Deaf(local.toys.Matcher):  # type: ignore[name-defined,misc]  # made in the fixture
        def rollback(self, num_tokens: int) -> None:
            pass

    class Engine(local.toys.Right):  # type: ignore[name-defined,misc]  # as above
        def compile(self, spec: object) -> object:
            artifact = super().compile(spec)
            artifact.new_matcher = lambda: Deaf(artifact.texts, artifact.vocabulary)
            return artifact

    local.Engine = Engine  # type: ignore[attr-defined]  # as above
    report = run_suite(SPEC, only=ONLY, isolate=False)
    assert not report.ok
    (line,) = report.failures
    assert (line.check.id, line.result.outcome) == (ONLY, "fail")
    assert ONLY in str(report)


def test_the_host_that_registered_it_can_be_given(local: types.ModuleType) -> None:
    host = PluginHost(autoload=False, plugins={"toys": local.toys})
    assert run_suite(host.backend("toy"), host=host, only=ONLY, isolate=False).ok


def test_a_backend_that_cannot_be_imported_was_not_judged() -> None:
    for isolate in (False, True):
        report = run_suite(SPEC, only=ONLY, isolate=isolate)
        assert not report.ok
        assert "cannot be imported" in report.unavailable["local"]
        assert report.lines == []


@pytest.mark.usefixtures("local", "own_laws")
@pytest.mark.parametrize(("profile", "outcome"), [("core", "fail"), ("forced_bytes", "unsupported")])
def test_no_core_law_may_be_unsupported(profile: str, outcome: str) -> None:
    @law("X1", "refuses", profile=profile, vocabularies=("byte",))
    def refuses(lab: Lab) -> None:
        """It is refused."""
        raise Unsupported("it is not declared")

    (line,) = run_suite(SPEC, profile=profile, only="X1/*", isolate=False).lines
    assert line.result.outcome == outcome
    assert "it is not declared" in line.result.detail


@pytest.mark.usefixtures("local", "own_laws")
def test_an_exception_that_is_no_verdict_is_an_error_with_its_traceback() -> None:
    @law("X1", "breaks", vocabularies=("byte",))
    def breaks(lab: Lab) -> None:
        """It breaks."""
        raise ZeroDivisionError("oh")

    (line,) = run_suite(SPEC, only="X1/*", isolate=False).failures
    assert (line.result.outcome, line.result.detail) == ("error", "ZeroDivisionError: oh")
    assert "in breaks" in line.in_full


@pytest.mark.usefixtures("local", "own_laws")
def test_running_out_of_memory_is_no_verdict_on_a_check() -> None:
    @law("X1", "eats", vocabularies=("byte",))
    def eats(lab: Lab) -> None:
        """It eats."""
        raise RuntimeError from MemoryError()

    with pytest.raises(MemoryError):
        run_suite(SPEC, only="X1/*", isolate=False)


def test_the_core_profile_has_the_core_laws_with_their_own_vocabularies() -> None:
    plan = Plan()
    assert {law.profile for law in plan.laws} == {"core"}
    checks = plan.checks("byte", ["runs-regex"])
    assert Check("A1/atomic-accept", "byte", "runs-regex") in checks
    assert all(check.vocabulary == "byte" for check in checks)
    assert not Plan(only=("A1/*",)).checks("tekken", ["runs-regex"])


def test_full_has_every_law_with_every_vocabulary_that_it_names() -> None:
    wide = replace(LAWS["A1/atomic-accept"], vocabularies=("byte", "adversarial", "tekken", "gguf"))
    assert [law.id for law in Plan("full").laws] == list(LAWS)
    assert list(Plan("full").vocabularies_of(wide)) == ["byte", "adversarial", "tekken", "gguf"]
    assert list(Plan("core").vocabularies_of(wide)) == ["byte", "adversarial", "tekken"]
    assert Plan("full", ("tekken",)).surveys == [Check(SURVEY, "tekken")]


def test_a_law_that_names_its_vocabulary_runs_with_no_other() -> None:
    some = LAWS["A1/atomic-accept"]
    special = replace(some, vocabularies=("adversarial",))
    assert list(Plan("full").vocabularies_of(special)) == ["adversarial"]
    assert Plan("core", ("byte",)).vocabularies_of(special) == []
    assert list(Plan("core", ("tekken",)).vocabularies_of(some)) == ["tekken"]


def test_globs_decide_which_vocabularies_are_surveyed() -> None:
    assert Plan(only=("A1/atomic-accept@byte:runs*",)).surveys == [Check(SURVEY, "byte")]
    assert Plan(only=("*:no-such-sample",)).surveys == []


def test_every_id_leads_back_to_its_check() -> None:
    checks = list(every_check())
    assert len({check.id for check in checks}) == len(checks)
    for check in [checks[0], *checks[1::500]]:
        assert parse_check(check.id) == check
        assert Check.from_dict(check.to_dict()) == check
        assert check.statement


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"did you mean 'full'\? Profiles: core, full"):
        Plan("ful")
    with pytest.raises(PlanError, match="did you mean 'tekken'"):
        Plan(vocabularies=("teken",))
    with pytest.raises(PlanError, match="did you mean 'A1/atomic-accept@byte"):
        parse_check("A1/atomic-acept@byte:word-choice")
    assert profiles()[:2] == ["core", "full"]
