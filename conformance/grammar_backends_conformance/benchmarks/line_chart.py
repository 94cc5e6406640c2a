"""Line charts as SVG: enough for figures in the documents, in light and dark, with no library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Panel", "draw"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#7f7f7f")
"""Told apart by people who see colours differently too."""

WIDTH, HEIGHT = 460, 330
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 48
LEGEND_ROW, LEGEND_COLUMN = 20, 230

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222; }
.title { font-size: 14px; font-weight: 600; }
.grid { stroke: #0002; }
.line { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } .grid { stroke: #fff3; } }
"""


@dataclass(frozen=True)
class Panel:
    """One chart: values over places that stand at equal distances, on a logarithmic axis.

    Attributes:
        title: what it shows.
        x_title, y_title: of the axes.
        places: the labels on the x axis.
        lines: by name, a value above 0 for each place.
    """

    title: str
    x_title: str
    y_title: str
    places: Sequence[str]
    lines: Mapping[str, Sequence[float]]


def draw(panels: Sequence[Panel]) -> str:
    """Panels side by side with one legend; all have the same lines and share one y axis."""
    names = list(panels[0].lines)
    values = [value for panel in panels for line in panel.lines.values() for value in line]
    decades = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    width = WIDTH * len(panels)
    columns = width // LEGEND_COLUMN
    height = HEIGHT + LEGEND_ROW * math.ceil(len(names) / columns) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape('; '.join(panel.title for panel in panels))}</title>",
        f"<style>{STYLE}</style>",
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({number * WIDTH} 0)">', *_panel(panel, decades), "</g>"]
    for number, name in enumerate(names):
        x, y = LEFT + number % columns * LEGEND_COLUMN, HEIGHT + number // columns * LEGEND_ROW
        parts.append(f'<line class="line" stroke="{_colour(number)}" x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x + 28}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, decades: tuple[int, int]) -> list[str]:
    lowest, highest = decades
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x_of(place: int) -> float:
        return LEFT + (right - LEFT) * (place + 0.5) / len(panel.places)

    def y_of(value: float) -> float:
        return bottom - (bottom - TOP) * (math.log10(value) - lowest) / (highest - lowest)

    parts = [f'<text class="title" x="{LEFT}" y="18">{escape(panel.title)}</text>']
    for decade in range(lowest, highest + 1):
        y = y_of(10.0**decade)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>')
    for place, label in enumerate(panel.places):
        x = x_of(place)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(label)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle:.1f}" y="{bottom + 35}" text-anchor="middle">{escape(panel.x_title)}</text>')
    turned = f'transform="rotate(-90)" x="{-(TOP + bottom) / 2:.1f}" y="9" text-anchor="middle"'
    parts.append(f"<text {turned}>{escape(panel.y_title)}</text>")
    for number, line in enumerate(panel.lines.values()):
        points = [(x_of(place), y_of(value)) for place, value in enumerate(line)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line" stroke="{_colour(number)}" points="{path}"/>')
        parts += [f'<circle r="3" fill="{_colour(number)}" cx="{x:.1f}" cy="{y:.1f}"/>' for x, y in points]
    return parts


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
