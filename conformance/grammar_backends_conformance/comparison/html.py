"""A run as one self-contained HTML page (`reports.page`); it embeds the results, with times as percentiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from grammar_backends_conformance.comparison.outcome import OUTCOMES, CaseResult
from grammar_backends_conformance.comparison.results import RunResults
from grammar_backends_conformance.comparison.statistics import FIGURES, METRICS, Metric, Summary, summarise
from grammar_backends_conformance.comparison.tables import figure, times_caption
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

__all__ = ["render"]

WIDTH, LABELS, ROW, TOP, RIGHT = 400, 96, 26, 8, 22
"""The chart, in its own units: small enough that its text stays readable on a phone."""


def render(run: RunResults) -> str:
    """The page."""
    summary = summarise(run.results)
    body = [
        _header(run),
        _correctness(run, summary),
        _speed(run, summary),
        _failing(run),
        environment_section(run.environment),
    ]
    return page(f"Grammar backends compared: {run.corpus['name']}", body, run.to_dict(raw=False))


def _header(run: RunResults) -> str:
    facts = f"{run.corpus['name']}, {len(run.cases)} cases; tokenizer {run.environment.get('tokenizer', '')}; "
    facts += machine_facts(run.environment)
    parts = ["<h1>Grammar backends compared</h1>", f'<p class="faint">{text(facts)}</p>']
    if not run.complete:
        parts.append('<p class="warning">The run was interrupted: these are the results so far.</p>')
    parts += [f'<p class="warning">{text(name)} did not run: {text(why)}</p>' for name, why in run.unavailable.items()]
    if problems := run.corpus.get("problems"):
        listed = "".join(f"<li>{text(problem)}</li>" for problem in problems)
        parts.append(f'<div class="warning">Corpus lines that could not be read:<ul>{listed}</ul></div>')
    return "\n".join(parts)


def _correctness(run: RunResults, summary: Summary) -> str:
    rows = [
        [
            text(backend),
            text(run.backends.get(backend, {}).get("version", "")),
            *(f'<span class="number">{value}</span>' for value in (sum(counts.values()), *map(counts.get, OUTCOMES))),
        ]
        for backend, counts in summary.outcomes.items()
    ]
    bars = "".join(
        f"<h3>{text(backend)}</h3>{outcome_bar(counts, OUTCOMES)}" for backend, counts in summary.outcomes.items()
    )
    counted = table(["Backend", "Version", "Cases", *OUTCOMES], rows, first_number=2)
    return f'<h2>Correctness</h2>{counted}{outcome_legend(OUTCOMES)}<div class="bars">{bars}</div>'


def _speed(run: RunResults, summary: Summary) -> str:
    if not summary.common:
        return "<h2>Speed</h2><p>No case passes on every backend, so there are no times to compare.</p>"
    intro = f"<p>Compared {text(times_caption(run, summary))}. In brackets: ratio to the best.</p>"
    return f"<h2>Speed</h2>{intro}" + "".join(_metric(metric, summary) for metric in METRICS)


def _metric(metric: Metric, summary: Summary) -> str:
    times, ratios = summary.times[metric.key], summary.ratios[metric.key]
    if not any("p50" in values for values in times.values()):
        return ""
    rows = [
        [text(backend), *(_time_cell(values, ratios[backend], name) for name in FIGURES), str(values["count"])]
        for backend, values in times.items()
    ]
    percentiles = table(["Backend", *FIGURES, "Values"], rows, first_number=1)
    return f"<h3>{metric.title}, {metric.unit}</h3>{_chart(metric, times)}{percentiles}"


def _time_cell(times: Mapping[str, float], ratios: Mapping[str, float], name: str) -> str:
    if name not in times:
        return "-"
    ratio = ratios.get(name)
    shown = figure(times[name]) + (f" ({ratio:.1f}×)" if ratio is not None else "")
    return f'<span class="best">{shown}</span>' if ratio is not None and ratio <= 1 else shown


def _chart(metric: Metric, times: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each backend: its percentiles on one logarithmic axis."""
    values = [v[name] for v in times.values() for name in FIGURES if v.get(name, 0) > 0]
    low = math.floor(math.log10(min(values, default=1)))
    high = max(low + 1, math.ceil(math.log10(max(values, default=10))))
    bottom = TOP + ROW * len(times)

    def x(value: float) -> float:
        power = math.log10(value) if value > 0 else low
        return LABELS + (WIDTH - LABELS - RIGHT) * (power - low) / (high - low)

    grid = "".join(_tick(x(10.0**power), 10.0**power, bottom) for power in range(low, high + 1))
    rows = "".join(
        _row(backend, [(name, v[name], x(v[name])) for name in FIGURES if name in v], TOP + ROW * (index + 0.5))
        for index, (backend, v) in enumerate(times.items())
    )
    title = f"{metric.title} in {metric.unit}, logarithmic: p50 filled, then p90, p99 and the maximum"
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {bottom + 18}" role="img" aria-label="{title}">'
        f'<title>{title}</title>{grid}{rows}</svg><p class="faint">{title}.</p>'
    )


def _tick(x: float, value: float, bottom: float) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        f'<text class="tick" x="{x:.1f}" y="{bottom + 13}" text-anchor="middle">{value:g}</text>'
    )


def _row(backend: str, points: Sequence[tuple[str, float, float]], y: float) -> str:
    name = backend if len(backend) <= 15 else backend[:14] + "…"
    parts = [f'<text x="0" y="{y + 4}">{text(name)}</text>']
    if points:
        parts.append(f'<line class="span" x1="{points[0][2]:.1f}" x2="{points[-1][2]:.1f}" y1="{y}" y2="{y}"/>')
    for index, (percentile, value, x) in enumerate(points):
        kind = "dot median" if index == 0 else "dot"
        title = f"<title>{text(backend)} {percentile}: {figure(value)}</title>"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="{5 - index}">{title}</circle>')
    return "".join(parts)


def _failing(run: RunResults) -> str:
    form = filter_form(name for name in OUTCOMES if name != "pass")
    lists = "".join(_failing_of(backend, by_id.values()) for backend, by_id in run.results.items())
    return f"<h2>Cases that do not pass</h2>{form}{lists}"


def _failing_of(backend: str, results: Iterable[CaseResult]) -> str:
    order = {name: index for index, name in enumerate(OUTCOMES)}
    failing = sorted((r for r in results if r.outcome != "pass"), key=lambda r: (order[r.outcome], r.id))
    return listing(backend, "Case", [(result.outcome, result.id, _why(result)) for result in failing])


def _why(result: CaseResult) -> str:
    chosen = f"{result.chosen}: " if result.chosen else ""
    items = "".join(
        f"<li>test {failure.test}, byte {failure.position}: {text(failure.what)}</li>" for failure in result.failures
    )
    return text(chosen + result.detail) + (f"<ul>{items}</ul>" if items else "")
