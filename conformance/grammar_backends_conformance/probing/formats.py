"""Probes about formats: texts that each specification allows, and texts that it does not.

Labelled by hand from the specifications. Where the oracle knows a format, a test holds the labels against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grammar_backends import GrammarOptions
from grammar_backends.contract.spec import STANDARD_FORMATS
from grammar_backends_conformance.corpora.reading import Case, CaseText
from grammar_backends_conformance.probing.keywords import CLOSED
from grammar_backends_conformance.probing.probe import Probe, about_schema, written

__all__ = ["SAMPLES", "format_probes"]

_V4_GOOD = ("0.0.0.0", "127.0.0.1", "255.255.255.255", "192.168.1.10", "1.20.200.25")
_V4_BAD = (
    "256.0.0.1",
    "1.2.3",
    "1.2.3.4.5",
    "01.2.3.4",
    "1.2.3.04",
    "1..2.3",
    "",
    "a.b.c.d",
    "1.2.3.4 ",
    "0x1.2.3.4",
    "1.2.3.-4",
)
_HOSTS = ("localhost", "example.com", "a", "a-b.c", "x1.example", "1.2", "a" * 63, f"{'a' * 63}.b")
_NO_HOSTS = (
    "",
    "-a",
    "a-",
    "a_b",
    "a..b",
    ".a",
    "a b",
    "a" * 64,
    "ex*mple.com",
    "a.-b",
    ".".join(["a" * 50] * 6),
    "a/b",
)

SAMPLES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "date": (
        ("2024-01-31", "2024-02-29", "1999-12-31", "2000-02-29", "0001-01-01", "2023-04-30"),
        (
            "2023-02-29",
            "1900-02-29",
            "2024-13-01",
            "2024-00-10",
            "2024-04-31",
            "2024-1-1",
            "24-01-01",
            "2024/01/01",
            "",
            "2024-01-32",
            "2024-01-00",
            "2024-01-01T00:00:00Z",
            "2024-01-0a",
        ),
    ),
    "time": (
        (
            "00:00:00Z",
            "23:59:59Z",
            "12:30:45.123Z",
            "12:30:45+02:00",
            "12:30:45-11:30",
            "08:00:00z",
            "12:30:45.1234567Z",
        ),
        (
            "24:00:00Z",
            "12:60:00Z",
            "12:30:61Z",
            "12:30Z",
            "12:30:45",
            "1:30:45Z",
            "12:30:45+2:00",
            "12:30:45+24:00",
            "",
            "12:30:45.Z",
            "12-30-45Z",
            "12:30:45 Z",
            "22:59:60Z",
        ),
    ),
    "date-time": (
        ("2024-02-29T12:30:45Z", "1999-12-31T23:59:59.999+05:30", "2024-01-01t00:00:00z", "2024-06-30T00:00:00-01:00"),
        (
            "2023-02-29T00:00:00Z",
            "2024-01-01 00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01",
            "2024-01-01T00:00:00",
            "",
            "2024-1-01T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T00:00:00+1:00",
            "12:30:45Z",
        ),
    ),
    "duration": (
        (
            "P1D",
            "P1Y2M3D",
            "PT1H",
            "PT1H2M3S",
            "P1DT12H",
            "P4W",
            "PT0S",
            "P0D",
            "P1Y",
            "P2M",
            "PT36H",
            "P10Y10M10DT10H10M10S",
        ),
        (
            "",
            "P",
            "PT",
            "P1",
            "1D",
            "P1DT",
            "P1S",
            "PT1D",
            "P1H",
            "P1W2D",
            "P1D1Y",
            "P1Y1W",
            "-P1D",
            "P1.5D",
            "p1d",
            "P1Y3D",
        ),
    ),
    "email": (
        (
            "a@b.co",
            "first.last@example.com",
            "x+tag@sub.example.org",
            "a_b-c@d-e.com",
            "1@2.net",
            "a!#$%&'*+/=?^_`{|}~-9@x.yz",
            "First.Last@Example.COM",
        ),
        (
            "",
            "a",
            "@b.co",
            "a@",
            "a b@c.de",
            ".a@b.co",
            "a.@b.co",
            "a..b@c.de",
            "a@b@c.de",
            "a@-b.co",
            "a@b..co",
            "a,b@c.de",
        ),
    ),
    "hostname": (_HOSTS, _NO_HOSTS),
    "ipv4": (_V4_GOOD, _V4_BAD),
    "ip-address": (_V4_GOOD, _V4_BAD),
    "host-name": (_HOSTS, _NO_HOSTS),
    "ipv6": (
        (
            "::",
            "::1",
            "1::",
            "2001:db8::1",
            "1:2:3:4:5:6:7:8",
            "fe80::a:b",
            "::ffff:192.0.2.1",
            "ABCD:ef01::",
            "1:2:3:4:5:6:1.2.3.4",
        ),
        (
            "",
            ":",
            ":::",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8:9",
            "1::2::3",
            "12345::",
            "g::",
            "::1%eth0",
            "1.2.3.4",
            ":1",
            "1:",
            "::256.0.0.1",
            "1:2:3:4:5:6:7::8::",
            "::1.2.3",
        ),
    ),
    "uri": (
        (
            "http://a",
            "https://example.com/a/b?c=d#e",
            "mailto:a@b.co",
            "urn:isbn:0451450523",
            "ftp://u@h:21/x",
            "a:b",
            "http://[::1]/",
            "http://a/%20",
            "file:///etc/x",
            "tel:+1-816-555-1212",
        ),
        (
            "",
            "a",
            "//a/b",
            "/a",
            "http:// a",
            "1a:b",
            "http://a/<b>",
            "http://a/%zz",
            "http://a/{b}",
            ":a",
            "http://a\\b",
            "http://é.fr",
        ),
    ),
    "uri-reference": (
        ("http://a/b", "/a/b", "a/b?c#d", "", "#x", "?y", "../a", "//a/b", "urn:a:b", "a%20b"),
        ("a b", "\\\\a\\b", "http://a/<b>", "#a\\b", "a%zz", "{a}", "é", '"a"', "^"),
    ),
    "uri-template": (
        ("", "a", "/a/{b}", "{x,y}", "{+a}/b{?c,d}", "{a:3}", "{a*}", "http://e.com/{#f}", "{&x}", "{;a}"),
        ("{", "}", "a{b", "a}b", "{a{b}}", "{}", "{a b}"),
    ),
    "iri": (
        ("http://é.fr/ü", "http://a/b?c=é#d", "urn:a:b", "mailto:é@b.co", "https://日本.jp/"),
        ("", "/a", "a", "http:// é", "http://é/<b>", "é", "\\a"),
    ),
    "iri-reference": (
        ("http://é.fr/ü", "/é", "#é", "", "a/é?x", "//é/b"),
        ("a b", "\\é", "é<b>", '"é"', "{é}"),
    ),
    "idn-email": (
        ("a@b.co", "é@b.co", "user@日本.jp", "실례@실례.테스트"),
        ("", "a", "@é", "é@", "a b@c.de"),
    ),
    "idn-hostname": (
        ("localhost", "é.fr", "日本.jp", "실례.테스트", "a-b.c"),
        ("", "-a", "a_b", "a b", "a" * 64, "〮한국", "é..fr"),
    ),
    "json-pointer": (
        ("", "/", "/a", "/a/0", "/~0/~1", "//", "/é", "/a b", "/a//b", "/~01"),
        ("a", "#", "#/a", "/~", "/~2", "/a~", "0/a", "/~a"),
    ),
    "relative-json-pointer": (
        ("0", "1", "0/a", "12/b/c", "0#", "3#", "1/~0~1"),
        ("", "/a", "01", "-1", "a", "0##", "1/~", "+1", "0#/a", "1/~2"),
    ),
    "regex": (
        ("", "a", "^a+$", "[a-z]{2,3}", "(a|b)*", "\\d"),
        ("(", "[", "a{2,1}", "*", "(?", "a**"),
    ),
    "uuid": (
        (
            "12ab34cd-0000-4000-8000-00aa11bb22cc",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-1FFF-FFFF-FFFFFFFFFFFF",
        ),
        (
            "",
            "12ab34cd-0000-4000-8000-00aa11bb22c",
            "12ab34cd00004000800000aa11bb22cc",
            "12ab34cd-0000-4000-8000-00aa11bb22cg",
            "12ab34cd-0000-4000-8000-00aa11bb22ccd",
            "{12ab34cd-0000-4000-8000-00aa11bb22cc}",
            "12ab34cd-00004-000-8000-00aa11bb22cc",
        ),
    ),
}
"""Per format of the specification, valid texts and others."""

UNKNOWN = ("currency", "int32", "my-own-format", "color")


def format_probes() -> Iterator[Probe]:
    """Each format at the root and below it, and formats that JSON Schema does not define."""
    for name in sorted(STANDARD_FORMATS):
        for number, schema in enumerate(_schemas(name)):
            about = f"formats/{name}"
            yield Probe(about, Case(f"{about}#{number}", "json_schema", schema, tuple(_tests(name, below=number > 0))))
    unknown = [{"type": "string", "format": name} for name in UNKNOWN]
    yield from about_schema("unknown_formats", unknown, ("", "a", "é", 1, None, [], "2024-01-01"))


def _schemas(name: str) -> Iterator[dict[str, Any]]:
    schema = {"type": "string", "format": name}
    yield schema
    yield {"type": "object", "properties": {"a": schema}, "required": ["a"], **CLOSED}


def _tests(name: str, *, below: bool) -> Iterator[CaseText]:
    valid, invalid = SAMPLES[name]
    labelled = [*((True, text) for text in valid), *((False, text) for text in invalid), (False, 7), (False, None)]
    for is_valid, value in labelled:
        yield CaseText(is_valid, written({"a": value} if below else value, GrammarOptions()))
