"""Formats of JSON Schema as regular expressions: for engines that do not know them.

Each pattern is written after the grammar of its specification, in the syntax that all dialects share. Some are narrower
than their format, which no pattern says, and must not be negated: where seconds leap no pattern knows, and of regular
expressions the one here has what every dialect reads. Host names and mail addresses beyond ASCII are not here.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FORMAT_PATTERNS", "FORMAT_SHAPES", "NARROW_FORMATS"]

_PERCENT = "%[0-9A-Fa-f]{2}"
_UNRESERVED = r"A-Za-z0-9\-._~"
_DELIMITERS = "!$&'()*+,;="
_BEYOND_ASCII = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr(plane << 16 if plane < 14 else 0xE1000)}-{chr(plane << 16 | 0xFFFD)}" for plane in range(1, 15)
)
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = "[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    """RFC 4291: eight groups, the last two perhaps in IPv4's notation, and one run of zeros left out at most."""
    ipv4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
    ways = [rf"(?:{_GROUP}:){{6}}(?:{_GROUP}:{_GROUP}|{ipv4})"]
    for before in range(8):
        head = rf"{_GROUP}(?::{_GROUP}){{{before - 1}}}" if before else ""
        after = 7 - before
        tails = [""] + ([rf"{_GROUP}(?::{_GROUP}){{0,{after - 1}}}"] if after else [])
        if after >= 2:
            tails.append(rf"(?:{_GROUP}:){{0,{after - 2}}}{ipv4}")
        ways.append(rf"{head}::(?:{'|'.join(tails)})")
    return f"(?:{'|'.join(ways)})"


_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_IPV6 = _ipv6()

_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_CLOCK = (
    r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    r"|23:59:60(?:\.[0-9]+)?(?:[Zz]|[+-]00:00))"
)

_DAYS = "[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?"
_HOURS = "T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?)"

_UUID = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"


def _reference(more: str, private: str) -> tuple[str, str]:
    """RFC 3986, or RFC 3987 with more characters: what has a scheme, and what is relative."""

    def one_of(characters: str) -> str:
        return f"(?:[{_UNRESERVED}{_DELIMITERS}{characters}{more}]|{_PERCENT})"

    segment = one_of(":@")
    below = f"(?:/{segment}*)*"
    future = rf"[vV][0-9A-Fa-f]+\.[{_UNRESERVED}{_DELIMITERS}:]+"
    host = rf"(?:\[(?:{_IPV6}|{future})\]|{one_of('')}*)"
    authority = f"//(?:{one_of(':')}*@)?{host}(?::[0-9]*)?{below}"
    absolute = f"/(?:{segment}+{below})?"
    query = rf"(?:\?(?:{one_of(f':@/?{private}')})*)?(?:#(?:{one_of(':@/?')})*)?"
    whole = f"[A-Za-z][A-Za-z0-9+.\\-]*:(?:{authority}|{absolute}|{segment}+{below})?{query}"
    relative = f"(?:{authority}|{absolute}|{one_of('@')}+{below})?{query}"
    return whole, relative


_URI, _RELATIVE = _reference("", "")
_IRI, _IRI_RELATIVE = _reference(_BEYOND_ASCII, _PRIVATE)

_POINTER = "(?:/(?:[^/~]|~[01])*)*"

_VARIABLE = f"(?:[A-Za-z0-9_]|{_PERCENT})(?:\\.?(?:[A-Za-z0-9_]|{_PERCENT}))*(?::[1-9][0-9]{{0,3}}|\\*)?"
_LITERAL = f"[!#$&(-;=?-\\[\\]_a-z~{_BEYOND_ASCII}{_PRIVATE}]|{_PERCENT}"


def _regex() -> str:
    """ECMA-262, with the flag `u` and without: what other dialects read too, and groups four deep at most.

    There are no names, references or look-behind; neither groups in look-ahead nor look-ahead in groups. Ranges and
    counts are those in which one sees the order: `a-f`, `2-9`, `{2,5}`.
    """
    escaped = r"\\(?:[dDwWsSfnrtv^$\\.*+?()\[\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
    ranges = "|".join(f"{first}-[{first}-{last}]|[{first}-{last}]-{last}" for first, last in ("09", "AZ", "az"))
    member = rf"(?:{ranges}|[^\x00-\x1f\\\[\]^&~|\-]|{escaped}|\\-)"
    members = rf"\[\^?(?:-|-?{member}+-?)\]"
    ordered = "|".join(f"{least},[{least}-9]" for least in range(10))
    number = "(?:0|[1-9][0-9]{0,2})"
    count = rf"(?:(?:[*+?]|\{{(?:{number},?|{ordered}|[0-9],[1-9][0-9]{{1,2}}|[1-9][0-9],[1-9][0-9]{{2}})\}})\??)?"
    single = rf"[^\x00-\x1f\\^$.*+?()\[\]{{}}|]|\.|{escaped}|{members}"
    edge = r"[|^$]|\\[bB]"
    flat = group = f"(?:{edge}|(?:{single}){count})*"
    for _ in range(3):
        group = rf"(?:{edge}|(?:{single}|\((?:\?:)?{group}\)){count})*"
    return rf"(?:{edge}|(?:{single}|\((?:\?:)?{group}\)){count}|\(\?[=!]{flat}\))*"


FORMAT_PATTERNS: Mapping[str, str] = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE}[Tt]{_CLOCK}$",
    "duration": f"^P(?:(?:{_DAYS})(?:{_HOURS})?|{_HOURS}|[0-9]+W)$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^{_IPV6}$",
    "iri": f"^{_IRI}$",
    "iri-reference": f"^(?:{_IRI}|{_IRI_RELATIVE})$",
    "json-pointer": f"^{_POINTER}$",
    "regex": f"^{_regex()}$",
    "relative-json-pointer": f"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
    "time": f"^{_CLOCK}$",
    "uri": f"^{_URI}$",
    "uri-reference": f"^(?:{_URI}|{_RELATIVE})$",
    "uri-template": f"^(?:{_LITERAL}|\\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\\}})*$",
    "uuid": f"^{_UUID}$",
}
"""By name: RFC 3339, 3986, 3987, 4122, 4291, 6570, 6901, ECMA-262, and the draft of relative JSON pointers."""

NARROW_FORMATS = frozenset(("date-time", "regex", "time"))
"""Formats that allow more than their pattern: seconds that leap at other times, and the rest of regular expressions."""

FORMAT_SHAPES: Mapping[str, str] = {
    "date": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "date-time": "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:",
    "duration": "^P[0-9A-Z]+$",
    "email": '^(?:"|[^":@]+@)',
    "hostname": r"^[A-Za-z0-9.\-]+$",
    "ipv4": r"^[0-9]{1,3}(?:\.[0-9]{1,3}){3}$",
    "ipv6": r"^[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*$",
    "json-pointer": r"^(?:/[\s\S]*)?$",
    "relative-json-pointer": "^[0-9]",
    "time": r"^[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+\-][0-9]{2}:[0-9]{2})$",
    "uri": r"^[A-Za-z][A-Za-z0-9+.\-]*:",
    "uuid": "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$",
}
"""By name, a short pattern that all strings of a format match, and others too: it tells what is of no such format."""
