"""Filling the rows of many grammars, of any mix of backends, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from grammar_backends.contract import BatchFiller, BitmaskTensor, Grammar, Matcher, StructuredOutputGrammar
from grammar_backends.contract.bitmask import Bitmask, check_rows
from grammar_backends.errors import BitmaskError, GrammarError

__all__ = ["FillOutcome", "fill_bitmasks"]

FillOutcome = GrammarError | None


def fill_bitmasks(
    grammars: Sequence[StructuredOutputGrammar], bitmask: BitmaskTensor, rows: Sequence[int] | None = None
) -> list[FillOutcome]:
    """Fill one row for each grammar, by its engine's native batch call where there is one.

    Rows that are not listed keep every bit. A grammar that cannot fill its row harms no other: its row is left
    without any token, and its error is returned in its place (F18, K4).

    Args:
        grammars: one for each row; each at most once.
        bitmask: CPU int32 ``[rows, ceil(width / 32)]``.
        rows: which row each grammar fills; None for 0, 1, 2, ...

    Returns:
        For each grammar None, or the error that it is now in.

    Raises:
        BitmaskError: wrong shape, dtype, device or layout, a row out of range or listed twice (A20).
    """
    rows = list(range(len(grammars))) if rows is None else list(rows)
    if len(rows) != len(grammars) or len(set(rows)) != len(rows):
        raise BitmaskError(f"{len(grammars)} grammars need as many different rows, not {rows}")
    view = Bitmask.of(bitmask)
    words: set[Any] = {getattr(grammar, "words", view.words) for grammar in grammars}
    for needed in words:
        check_rows(view, rows, needed)
    alone: list[int] = []
    for filler, members, matchers in by_filler(grammars):
        if filler is None:
            alone += members
            continue
        targets = rows if len(members) == len(rows) else [rows[index] for index in members]
        try:
            filler.fill_rows(matchers, view, targets)
        except Exception:  # whose fault it was shows when they are filled one by one
            alone += members
        else:
            one_of_them = cast("Grammar", grammars[members[0]])  # nothing else fills by a native call
            alone += [members[place] for place in empty_rows(view, targets, one_of_them.usual_id)]
    outcomes: list[FillOutcome] = [None] * len(grammars)
    for index in alone:
        try:
            grammars[index].fill_bitmask(bitmask, rows[index])
        except GrammarError as error:
            view.rows[rows[index]].array.fill(0)
            outcomes[index] = error
    return outcomes


Group = tuple[BatchFiller | None, Sequence[int], Sequence[Matcher]]


def by_filler(grammars: Sequence[Any]) -> list[Group]:
    """Places in `grammars`, and matchers, by the engine that fills them together; under None those that fill alone."""
    batches: list[tuple[BatchFiller, Matcher] | None] = [getattr(grammar, "batch", None) for grammar in grammars]
    first = batches[0] if batches else None
    if first is not None:
        filler = first[0]
        matchers = [batch[1] for batch in batches if batch is not None and batch[0] is filler]
        if len(matchers) == len(batches):
            return [(filler, range(len(batches)), matchers)]
    groups: dict[BatchFiller | None, tuple[list[int], list[Matcher]]] = {}
    for index, batch in enumerate(batches):
        members, of_group = groups.setdefault(batch and batch[0], ([], []))
        members.append(index)
        if batch is not None:
            of_group.append(batch[1])
    return [(filler, members, of_group) for filler, (members, of_group) in groups.items()]


def empty_rows(view: Bitmask, rows: Sequence[int], usual_id: int) -> list[int]:
    """Places in `rows` of those without any bit; most that have some show it near `usual_id`."""
    shown = view.array[rows, usual_id >> 5].tolist()
    if 0 not in shown:
        return []
    zeros = view.zeros
    return [place for place, row in enumerate(rows) if not shown[place] and view.rows[row].memory == zeros]
