"""The ground of every HTML page here: one self-contained file, light and dark, complete without scripts.

A page makes no request of its own and embeds its data as JSON, so that it can be read by a program later.
"""

from __future__ import annotations

import html
import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "environment_section",
    "filter_form",
    "listing",
    "machine_facts",
    "outcome_bar",
    "outcome_legend",
    "page",
    "table",
    "text",
]


def page(title: str, body: Iterable[str], data: Any) -> str:
    """A whole page; `data` is what it embeds."""
    # "<" must not occur: a text in the data could otherwise end the script element.
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = [
        *body,
        f'<script type="application/json" id="results">{embedded}</script>',
        f"<script>{_asset('page.js')}</script>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_asset('page.css')}</style>"
        f"</head><body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def text(value: object) -> str:
    """Any value as text that cannot become markup."""
    return html.escape(str(value))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], first_number: int = 1 << 30) -> str:
    """A table of cells that are HTML already; columns from `first_number` on hold numbers."""

    def kind(index: int) -> str:
        return ' class="number"' if index >= first_number else ""

    head = "".join(f"<th{kind(index)}>{text(name)}</th>" for index, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(index)}>{cell}</td>" for index, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def outcome_legend(outcomes: Iterable[str]) -> str:
    """The colours of outcomes."""
    items = "".join(f'<li><i style="background:var(--{name})"></i>{name}</li>' for name in outcomes)
    return f'<ul class="legend">{items}</ul>'


def outcome_bar(counts: Mapping[str, int], outcomes: Iterable[str]) -> str:
    """One bar, divided as the outcomes are."""
    total, start, parts, labels = max(1, sum(counts.values())), 0.0, [], []
    for name in outcomes:
        width = 1000 * counts[name] / total
        if width:
            labels.append(f"{name} {counts[name]}")
            title = f"<title>{name}: {counts[name]}</title>"
            parts.append(
                f'<rect x="{start:.1f}" width="{width:.1f}" height="20" style="fill:var(--{name})">{title}</rect>'
            )
        start += width
    return (
        '<svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" '
        f'aria-label="{", ".join(labels)}">{"".join(parts)}</svg>'
    )


def filter_form(outcomes: Iterable[str]) -> str:
    """What the script filters lists of class "failing" by."""
    choices = "".join(f"<option>{name}</option>" for name in outcomes)
    return (
        '<form class="filter" hidden><input type="search" placeholder="Filter by id or text" aria-label="Filter">'
        f'<select aria-label="Outcome"><option value="">every outcome</option>{choices}</select></form>'
    )


def listing(backend: str, kind: str, items: Sequence[tuple[str, str, str]], *, unfolded: bool = False) -> str:
    """A list of class "failing", which the form filters.

    Args:
        backend: whose it is.
        kind: what is listed, as the head of a column.
        items: outcome, id, and why, which is HTML already.
        unfolded: whether it is open from the start.
    """
    rows = "".join(
        f'<tr data-outcome="{outcome}"><td class="tag" style="color:var(--{outcome})">{outcome}</td>'
        f'<td class="id">{text(id_)}</td><td class="why">{why}</td></tr>'
        for outcome, id_, why in items
    )
    head = f"<thead><tr><th>Outcome</th><th>{kind}</th><th>Why</th></tr></thead>"
    return (
        f'<details class="failing"{" open" if unfolded else ""}><summary>{text(backend)}: '
        f'<span class="shown">{len(items)}</span> of {len(items)}</summary>'
        f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div></details>'
    )


def machine_facts(environment: Mapping[str, Any]) -> str:
    """When and on what it ran, in a line."""
    return f"{environment.get('time', '')}; {environment.get('cpu', '')}, {environment.get('cores', '')} cores"


def environment_section(environment: Mapping[str, Any]) -> str:
    """Versions and machine, folded up."""
    rows = [
        [text(name), text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]
        for name, value in environment.items()
    ]
    return f"<h2>Environment</h2><details><summary>Versions, machine, limits</summary>{table([], rows)}</details>"


def _asset(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")
