"""A report as a badge: one small SVG that says whether a backend conforms, to be shown in its README."""

from __future__ import annotations

import html

from grammar_backends_conformance.reports.report import SuiteReport

__all__ = ["render"]

LABEL = "grammar-backends"
CHARACTER, PADDING, HEIGHT = 6.6, 12, 20
"""Width of a character and of what is around a text, in pixels: wide enough for every usual sans-serif."""

GREEN, RED, GREY = "#2f8f57", "#c62f3b", "#5d6675"


def render(report: SuiteReport) -> str:
    """The image."""
    message, colour = _verdict(report)
    left, right = (round(len(text) * CHARACTER + PADDING) for text in (LABEL, message))
    width = left + right
    title = html.escape(f"{LABEL}: {message}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="round"><rect width="{width}" height="{HEIGHT}" rx="3"/></clipPath><g clip-path="url(#round)">'
        f'<rect width="{left}" height="{HEIGHT}" fill="#1c2330"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="{colour}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14">{LABEL}</text>'
        f'<text x="{left + right / 2}" y="14">{html.escape(message)}</text></g></svg>\n'
    )


def _verdict(report: SuiteReport) -> tuple[str, str]:
    profile = report.settings["profile"]
    if not report.complete or not report.lines or report.unavailable:
        return f"{profile} not judged", GREY
    if not report.ok:
        count = len(report.failures) + len(report.problems)
        return f"{profile} {count} failing", RED
    expected = sum(by["expected-fail"] for by in report.outcomes.values())
    return f"{profile} conformant" + (f", {expected} known" if expected else ""), GREEN
