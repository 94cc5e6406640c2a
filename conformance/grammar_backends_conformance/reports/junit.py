"""A report as JUnit XML, which every CI system can show: a suite for each backend, a case for each check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml
from collections.abc import Mapping

from grammar_backends_conformance.reports.report import Line, SuiteReport

__all__ = ["render"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_ELEMENTS = {"fail": "failure", "error": "error", "crash": "error", "timeout": "error", "expected-fail": "skipped"}
"""What JUnit calls an outcome. An unsupported feature that is refused is a pass."""


def render(report: SuiteReport) -> str:
    """The document."""
    root = Xml.Element("testsuites", name="grammar_backends conformance")
    for backend in [*report.backends, *report.unavailable]:
        root.append(_suite(report, backend))
    if report.problems:
        suite = _element(root, "testsuite", {"name": "expectations", "tests": str(len(report.problems))})
        for problem in report.problems:
            case = _element(suite, "testcase", {"classname": "expectations", "name": problem})
            _element(case, "failure", {"message": problem})
        suite.set("failures", str(len(report.problems)))
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _suite(report: SuiteReport, backend: str) -> Xml.Element:
    lines = [line for line in report.lines if line.backend == backend]
    kinds = [_ELEMENTS.get(line.result.outcome) for line in lines]
    facts = {
        "name": backend,
        "tests": str(len(lines)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": f"{report.seconds(backend):.3f}",
        "timestamp": str(report.environment.get("time", "")),
    }
    suite = Xml.Element("testsuite", {name: _clean(value) for name, value in facts.items()})
    for line in lines:
        _case(suite, line)
    if backend in report.unavailable:
        case = _element(suite, "testcase", {"classname": backend, "name": "starts"})
        _element(case, "error", {"message": report.unavailable[backend]})
        suite.set("tests", "1")
        suite.set("errors", "1")
    return suite


def _case(suite: Xml.Element, line: Line) -> None:
    name = {"classname": f"{line.backend}.{line.rule or 'suite'}", "name": line.check.id}
    case = _element(suite, "testcase", {**name, "time": f"{line.result.seconds:.3f}"})
    kind = _ELEMENTS.get(line.result.outcome)
    if kind is None:
        if line.result.detail:
            _element(case, "system-out", {}).text = _clean(f"{line.result.outcome}: {line.result.detail}")
        return
    found = _element(case, kind, {"message": line.reason or line.result.detail, "type": line.result.outcome})
    found.text = _clean(str(line))


def _element(parent: Xml.Element, tag: str, attributes: Mapping[str, str]) -> Xml.Element:
    return Xml.SubElement(parent, tag, {name: _clean(value) for name, value in attributes.items()})


def _clean(text: str) -> str:
    """The text without what XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
