"""The benchmark of the CPU path: its masks are what they are called, its targets are told where they are missed, and
its plot shows every figure."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
import torch

from grammar_backends.contract import count_allowed
from grammar_backends_conformance.benchmarks import apply_masks
from grammar_backends_conformance.benchmarks.apply_masks import Cell
from grammar_backends_conformance.benchmarks.line_chart import Panel, draw

SVG = "{http://www.w3.org/2000/svg}"


def cell(mask: str, **times: float) -> Cell:
    return Cell(8, "float32", mask, 1, {"fill_": 100.0, "memset": 80.0, **times})


def test_h5_masks_allow_as_many_ids_as_their_names_say() -> None:
    allowed = {name: count_allowed(make(2)[1]) for name, make in apply_masks.MASKS.items()}
    assert list(allowed.values()) == [200, 128_256, 64_128, 0]


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        (cell("200 allowed", grammar_backends=100, xgrammar=1000), []),
        (cell("200 allowed", grammar_backends=101, xgrammar=1000), ["9.90 times as fast as xgrammar, not 10"]),
        (cell("200 allowed", grammar_backends=170, xgrammar=9999), ["2.12 times as long as filling, not 2"]),
        (cell("200 allowed", grammar_backends=170), ["2.12 times as long as filling, not 2"]),
        (cell("none allowed", grammar_backends=170, xgrammar=170), ["2.12 times as long as filling, not 2"]),
        (cell("half allowed", grammar_backends=500, xgrammar=500), []),
        (cell("all allowed", grammar_backends=5, xgrammar=4), ["0.80 times as fast as xgrammar, not 1"]),
    ],
)
def test_h5_a_target_that_is_missed_is_told(measured: Cell, missed: list[str]) -> None:
    assert list(apply_masks.missed_targets(measured)) == missed
    assert apply_masks.describe(measured).endswith(f"| {'; '.join(missed) or 'yes'} |")


def test_h6_every_way_that_is_timed_leaves_the_same_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, bitmask = torch.zeros(2, apply_masks.COLUMNS), apply_masks.allowing(2, 200)
    assert {"grammar_backends", "numpy", "torch", "xgrammar"} == set(apply_masks.ways_to_apply(logits, bitmask))
    monkeypatch.setattr(apply_masks, "apply_by_numpy", lambda call: None)
    with pytest.raises(RuntimeError, match="do not leave the same logits"):
        apply_masks.ways_to_apply(logits, bitmask)


def test_a_chart_has_every_value_within_its_panel_and_every_name_in_its_legend() -> None:
    lines = {"a <b>": [1.0, 20.0, 300.0], "c": [0.5, 0.05, 7.0]}
    panels = [
        Panel("first & only", "x", "y", ["1", "2", "3"], lines),
        Panel("second", "x", "y", ["1", "2", "3"], lines),
    ]
    picture = ElementTree.fromstring(draw(panels))
    texts = ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")]
    assert {"first & only", "second", "a <b>", "c"} <= set(texts)
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    groups = picture.findall(f"{SVG}g")
    assert len(groups) == 2
    for group in groups:
        curves = [line.attrib["points"] for line in group.iter(f"{SVG}polyline")]
        points = [[tuple(map(float, point.split(","))) for point in curve.split()] for curve in curves]
        assert [len(curve) for curve in points] == [3, 3]
        assert all(0 < x < width / 2 and 0 < y < height for curve in points for x, y in curve)
        heights = [y for curve in points for _, y in curve]
        values = [value for line in lines.values() for value in line]
        assert sorted(range(6), key=heights.__getitem__) == sorted(range(6), key=values.__getitem__, reverse=True)
