"""xgrammar's own JSON of a compiled grammar, made small enough to be kept.

Every rule of a compiled grammar has an automaton that is a view of one automaton for all rules. xgrammar writes the
whole for each rule, and reads as many copies: a grammar of 2 MB becomes 45 MB of JSON, which takes longer to read than
to compile and 80 MB of memory once it is read. `reduced` leaves each rule what can be reached from its start.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["estimated_bytes", "reduced"]

WHOLE = '"complete_fsm":'
PARTS = ',"per_rule_fsms":'


def estimated_bytes(grammar: str) -> int:
    """About how much JSON xgrammar will write for a grammar, of which this is the text: rules times size of the whole.

    Writing it takes ten times as much memory.
    """
    return 2 * grammar.count("::=") * len(grammar)


def reduced(text: str) -> str:
    """The same compiled grammar as less JSON, or the same text where it is not as expected."""
    head, _, rest = text.partition(WHOLE)
    whole, _, tail = rest.partition(PARTS)
    # Parsing comes last, when the copies are gone.
    short = "".join((head, WHOLE, whole, PARTS, tail.replace(f"[[{whole},", "[[null,")))
    try:
        data = json.loads(short)
        grammar = data["grammar"]
        for rule in grammar["per_rule_fsms"]:
            if rule is not None:
                _reduce(rule[0], grammar["complete_fsm"])
    except (ValueError, LookupError, TypeError):
        return text
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _reduce(view: list[Any], whole: dict[str, Any]) -> None:
    """Give a rule's view, ``[automaton, start, ends, is_dfa, edges]``, an automaton of its own.

    States keep their numbers, by which the rest of the grammar knows them.
    """
    copied, start, ends, _, _ = view
    if copied is not None:
        raise ValueError("the automaton of a rule is no copy of the whole")
    edges, bounds = whole["edges"]["data_"], whole["edges"]["indptr_"]
    reached = _reached(start, edges, bounds)
    kept: list[Any] = []
    kept_bounds = [0]
    for state in range(max([*reached, *ends]) + 1):
        if state in reached:
            kept += edges[bounds[state] : bounds[state + 1]]
        kept_bounds.append(len(kept))
    view[0] = {**whole, "edges": {"data_": kept, "indptr_": kept_bounds}, "edge_num": len(kept)}
    view[4] = len(kept)


def _reached(start: int, edges: list[list[int]], bounds: list[int]) -> set[int]:
    reached, todo = {start}, [start]
    while todo:
        state = todo.pop()
        for _, _, target in edges[bounds[state] : bounds[state + 1]]:
            if target not in reached:
                reached.add(target)
                todo.append(target)
    return reached
