"""A run as one self-contained HTML page: no external request, light and dark, complete without scripts.

The page embeds the results (times as percentiles), so that it can be compared with another one later.
"""

from __future__ import annotations

import html
import importlib.resources
import json
import math
from collections.abc import Iterable, Mapping, Sequence

from grammar_backends_conformance.comparison.outcome import OUTCOMES, CaseResult
from grammar_backends_conformance.comparison.results import RunResults
from grammar_backends_conformance.comparison.statistics import METRICS, PERCENTILES, Metric, Summary, summarise
from grammar_backends_conformance.comparison.tables import figure, times_caption

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
        _environment(run),
        f'<script type="application/json" id="results">{_embedded(run)}</script>',
        f"<script>{_asset('report.js')}</script>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Grammar backends compared: {_text(run.corpus['name'])}</title><style>{_asset('report.css')}</style>"
        f"</head><body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def _header(run: RunResults) -> str:
    environment = run.environment
    facts = f"{run.corpus['name']}, {len(run.cases)} cases; tokenizer {environment.get('tokenizer', '')}; "
    facts += f"{environment.get('time', '')}; {environment.get('cpu', '')}, {environment.get('cores', '')} cores"
    parts = ["<h1>Grammar backends compared</h1>", f'<p class="faint">{_text(facts)}</p>']
    if not run.complete:
        parts.append('<p class="warning">The run was interrupted: these are the results so far.</p>')
    parts += [
        f'<p class="warning">{_text(name)} did not run: {_text(why)}</p>' for name, why in run.unavailable.items()
    ]
    if problems := run.corpus.get("problems"):
        listed = "".join(f"<li>{_text(problem)}</li>" for problem in problems)
        parts.append(f'<div class="warning">Corpus lines that could not be read:<ul>{listed}</ul></div>')
    return "\n".join(parts)


def _correctness(run: RunResults, summary: Summary) -> str:
    rows = [
        [
            _text(backend),
            _text(run.backends.get(backend, {}).get("version", "")),
            *(f'<span class="number">{value}</span>' for value in (sum(counts.values()), *map(counts.get, OUTCOMES))),
        ]
        for backend, counts in summary.outcomes.items()
    ]
    legend = "".join(f'<li><i style="background:var(--{name})"></i>{name}</li>' for name in OUTCOMES)
    bars = "".join(f"<h3>{_text(backend)}</h3>{_bar(counts)}" for backend, counts in summary.outcomes.items())
    table = _table(["Backend", "Version", "Cases", *OUTCOMES], rows, first_number=2)
    return f'<h2>Correctness</h2>{table}<ul class="legend">{legend}</ul><div class="bars">{bars}</div>'


def _bar(counts: Mapping[str, int]) -> str:
    total, start, parts = max(1, sum(counts.values())), 0.0, []
    for name in OUTCOMES:
        width = 1000 * counts[name] / total
        if width:
            title = f"<title>{name}: {counts[name]}</title>"
            parts.append(
                f'<rect x="{start:.1f}" width="{width:.1f}" height="20" style="fill:var(--{name})">{title}</rect>'
            )
        start += width
    label = ", ".join(f"{name} {counts[name]}" for name in OUTCOMES if counts[name])
    return (
        f'<svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _speed(run: RunResults, summary: Summary) -> str:
    if not summary.common:
        return "<h2>Speed</h2><p>No case passes on every backend, so there are no times to compare.</p>"
    intro = f"<p>Compared {_text(times_caption(run, summary))}. In brackets: ratio to the best.</p>"
    return f"<h2>Speed</h2>{intro}" + "".join(_metric(metric, summary) for metric in METRICS)


def _metric(metric: Metric, summary: Summary) -> str:
    times, ratios = summary.times[metric.key], summary.ratios[metric.key]
    if not any("p50" in values for values in times.values()):
        return ""
    rows = [
        [_text(backend), *(_time_cell(values, ratios[backend], name) for name in PERCENTILES), str(values["count"])]
        for backend, values in times.items()
    ]
    table = _table(["Backend", *PERCENTILES, "Values"], rows, first_number=1)
    return f"<h3>{metric.title}, {metric.unit}</h3>{_chart(metric, times)}{table}"


def _time_cell(times: Mapping[str, float], ratios: Mapping[str, float], name: str) -> str:
    if name not in times:
        return "-"
    ratio = ratios.get(name)
    text = figure(times[name]) + (f" ({ratio:.1f}×)" if ratio is not None else "")
    return f'<span class="best">{text}</span>' if ratio is not None and ratio <= 1 else text


def _chart(metric: Metric, times: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each backend: its percentiles on one logarithmic axis."""
    values = [v[name] for v in times.values() for name in PERCENTILES if v.get(name, 0) > 0]
    low = math.floor(math.log10(min(values, default=1)))
    high = max(low + 1, math.ceil(math.log10(max(values, default=10))))
    bottom = TOP + ROW * len(times)

    def x(value: float) -> float:
        power = math.log10(value) if value > 0 else low
        return LABELS + (WIDTH - LABELS - RIGHT) * (power - low) / (high - low)

    grid = "".join(_tick(x(10.0**power), 10.0**power, bottom) for power in range(low, high + 1))
    rows = "".join(
        _row(backend, [(name, v[name], x(v[name])) for name in PERCENTILES if name in v], TOP + ROW * (index + 0.5))
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
    parts = [f'<text x="0" y="{y + 4}">{_text(name)}</text>']
    if points:
        parts.append(f'<line class="span" x1="{points[0][2]:.1f}" x2="{points[-1][2]:.1f}" y1="{y}" y2="{y}"/>')
    for index, (percentile, value, x) in enumerate(points):
        kind = "dot median" if index == 0 else "dot"
        title = f"<title>{_text(backend)} {percentile}: {figure(value)}</title>"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="{5 - index}">{title}</circle>')
    return "".join(parts)


def _failing(run: RunResults) -> str:
    choices = "".join(f"<option>{name}</option>" for name in OUTCOMES if name != "pass")
    form = (
        '<form class="filter" hidden><input type="search" placeholder="Filter by id or text" aria-label="Filter">'
        f'<select aria-label="Outcome"><option value="">every outcome</option>{choices}</select></form>'
    )
    lists = "".join(_failing_of(backend, by_id.values()) for backend, by_id in run.results.items())
    return f"<h2>Cases that do not pass</h2>{form}{lists}"


def _failing_of(backend: str, results: Iterable[CaseResult]) -> str:
    order = {name: index for index, name in enumerate(OUTCOMES)}
    failing = sorted((r for r in results if r.outcome != "pass"), key=lambda r: (order[r.outcome], r.id))
    rows = "".join(
        f'<tr data-outcome="{r.outcome}"><td class="tag" style="color:var(--{r.outcome})">{r.outcome}</td>'
        f'<td class="id">{_text(r.id)}</td><td class="why">{_why(r)}</td></tr>'
        for r in failing
    )
    head = "<thead><tr><th>Outcome</th><th>Case</th><th>Why</th></tr></thead>"
    return (
        f'<details class="failing"><summary>{_text(backend)}: <span class="shown">{len(failing)}</span> of '
        f'{len(failing)}</summary><div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div></details>'
    )


def _why(result: CaseResult) -> str:
    chosen = f"{result.chosen}: " if result.chosen else ""
    items = "".join(
        f"<li>test {failure.test}, byte {failure.position}: {_text(failure.what)}</li>" for failure in result.failures
    )
    return _text(chosen + result.detail) + (f"<ul>{items}</ul>" if items else "")


def _environment(run: RunResults) -> str:
    rows = [
        [_text(name), _text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]
        for name, value in run.environment.items()
    ]
    return f"<h2>Environment</h2><details><summary>Versions, machine, limits</summary>{_table([], rows)}</details>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], first_number: int = 1 << 30) -> str:
    """A table of cells that are HTML already; columns from `first_number` on hold numbers."""

    def kind(index: int) -> str:
        return ' class="number"' if index >= first_number else ""

    head = "".join(f"<th{kind(index)}>{_text(name)}</th>" for index, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(index)}>{cell}</td>" for index, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _embedded(run: RunResults) -> str:
    # "<" must not occur: a text in the results could otherwise end the script element.
    return json.dumps(run.to_dict(raw=False), separators=(",", ":")).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def _text(value: object) -> str:
    return html.escape(str(value))
