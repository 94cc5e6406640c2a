"""A report as one self-contained HTML page (`reports.page`): rules by backends, then what fails; embeds the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from grammar_backends_conformance.reports.outcome import FAILING, OUTCOMES, Outcome
from grammar_backends_conformance.reports.page import (
    environment_section,
    filter_form,
    listing,
    machine_facts,
    outcome_bar,
    outcome_legend,
    page,
    table,
    text,
)
from grammar_backends_conformance.reports.report import Line, SuiteReport

__all__ = ["render"]

SHOWN: tuple[Outcome, ...] = (*FAILING, "expected-fail")
"""Outcomes whose checks are listed one by one."""

_MARKS = {"pass": "✓", "expected-fail": "≈", "unsupported": "–"}
"""How a cell of the matrix shows an outcome; one that fails is counted."""


def render(report: SuiteReport) -> str:
    """The page."""
    backends = [*report.backends]
    body = [
        _header(report),
        _totals(report),
        _matrix(report.lines, backends),
        _not_passing(report.lines, backends),
        environment_section({**report.environment, **report.settings}),
    ]
    return page(f"Conformance: {', '.join(backends)}", body, report.to_dict())


def _header(report: SuiteReport) -> str:
    parts = ["<h1>Conformance of grammar backends</h1>", f"<p>{text(report.summary)}</p>"]
    parts.append(f'<p class="faint">{text(machine_facts(report.environment))}</p>')
    warnings = [f"{name} could not be judged: {reason}" for name, reason in report.unavailable.items()]
    parts += [f'<p class="warning">{text(warning)}</p>' for warning in [*warnings, *report.problems]]
    return "\n".join(parts)


def _totals(report: SuiteReport) -> str:
    rows, bars = [], []
    for name, outcomes in report.outcomes.items():
        counts = report.counts(name)
        numbers = [outcomes.total(), *(outcomes[outcome] for outcome in OUTCOMES), counts.states, counts.masks]
        version = report.backends.get(name, {}).get("version", "")
        rows.append([text(name), text(version), *(f"{number:,}" for number in numbers)])
        bars.append(f"<h3>{text(name)}</h3>{outcome_bar(outcomes, OUTCOMES)}")
    heads = ["Backend", "Version", "Checks", *OUTCOMES, "States", "Masks"]
    return table(heads, rows, first_number=2) + outcome_legend(OUTCOMES) + f'<div class="bars">{"".join(bars)}</div>'


def _matrix(lines: Iterable[Line], backends: list[str]) -> str:
    """A row for each law, a column for each backend."""
    statements: dict[str, str] = {}
    outcomes: dict[tuple[str, str], Counter[Outcome]] = {}
    for line in lines:
        statements[line.check.law] = line.statement
        outcomes.setdefault((line.check.law, line.backend), Counter())[line.result.outcome] += 1
    rows = [
        [
            f'<span class="law">{text(law)}</span>',
            *(_cell(outcomes.get((law, backend), Counter())) for backend in backends),
            f'<span class="statement">{text(statement)}</span>',
        ]
        for law, statement in sorted(statements.items(), key=lambda item: _rule_order(item[0]))
    ]
    legend = (
        '<p class="faint">✓ holds, – not declared and refused, ≈ fails as expected, a number: checks that fail.</p>'
    )
    return f"<h2>Rules</h2>{legend}{table(['Law', *backends, 'What must hold'], rows)}"


def _cell(outcomes: Counter[Outcome]) -> str:
    if not outcomes:
        return ""
    title = ", ".join(f"{name} {outcomes[name]}" for name in OUTCOMES if outcomes[name])
    failing = sum(outcomes[name] for name in FAILING)
    worst = next((name for name in (*FAILING, "expected-fail", "pass") if outcomes[name]), "unsupported")
    mark = str(failing) if failing else _MARKS[worst]
    return f'<span class="mark" style="color:var(--{worst})" title="{title}">{mark}</span>'


def _rule_order(law: str) -> tuple[str, int, str]:
    """A2 before A10."""
    rule, _, claim = law.partition("/")
    number = rule.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return rule.removesuffix(number), int(number) if number.isdecimal() else 0, claim


def _not_passing(lines: Sequence[Line], backends: list[str]) -> str:
    by_backend = {name: _listed(line for line in lines if line.backend == name) for name in backends}
    lists = "".join(listing(name, "Check", listed, unfolded=True) for name, listed in by_backend.items() if listed)
    return f"<h2>Checks that do not pass</h2>{filter_form(SHOWN)}{lists or '<p>None.</p>'}"


def _listed(lines: Iterable[Line]) -> list[tuple[str, str, str]]:
    shown = [line for line in lines if line.result.outcome in SHOWN]
    shown.sort(key=lambda line: SHOWN.index(line.result.outcome))
    return [(line.result.outcome, line.check.id, _why(line)) for line in shown]


def _why(line: Line) -> str:
    reason = f"<p>Expected: {text(line.reason)}</p>" if line.reason else ""
    full = f"<details><summary>In full</summary><pre>{text(line.in_full)}</pre></details>"
    return f"{reason}{text(line.result.detail)}{full}"
