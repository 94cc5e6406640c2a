"""Filling the rows of many grammars, of any mix of backends, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import cast

import numpy as np

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
        TypeError: a row is no integer.
    """
    rows = range(len(grammars)) if rows is None else [*map(index, rows)]
    if len(rows) != len(grammars) or len(set(rows)) != len(rows):
        raise BitmaskError(f"{len(grammars)} grammars need as many different rows, not {rows}")
    view = Bitmask.of(bitmask)
    groups = by_filler(grammars)
    for needed in words_of(grammars, groups, view.words):
        check_rows(view, rows, needed)
    alone: list[int] = []
    for filler, members, matchers in groups:
        if filler is None:
            alone += members
        else:
            one_of_them = cast("Grammar", grammars[members[0]])  # nothing else fills by a native call
            targets = rows if len(members) == len(rows) else [rows[member] for member in members]
            again = fill_together(filler, matchers, view, targets, one_of_them.usual_ids)
            alone += [members[place] for place in again]
    outcomes: list[FillOutcome] = [None] * len(grammars)
    for member in alone:
        try:
            grammars[member].fill_bitmask(bitmask, rows[member])
        except GrammarError as error:
            view.rows[rows[member]].array.fill(0)
            outcomes[member] = error
    return outcomes


Group = tuple[BatchFiller | None, Sequence[int], Sequence[Matcher]]


def by_filler(grammars: Sequence[StructuredOutputGrammar | None], members: Sequence[int] | None = None) -> list[Group]:
    """Places in `grammars`, and matchers, by the engine that fills them together; under None those that fill alone.

    Args:
        grammars: all that there are; None fills alone.
        members: the places to look at; None for all.
    """
    if members is None:
        members = range(len(grammars))
        batches = [getattr(grammar, "batch", None) for grammar in grammars]
    else:
        batches = [getattr(grammars[member], "batch", None) for member in members]
    if batches and all(batches):
        fillers, matchers = zip(*batches, strict=True)
        if fillers.count(fillers[0]) == len(fillers):
            return [(fillers[0], members, matchers)]
    groups: dict[BatchFiller | None, tuple[list[int], list[Matcher]]] = {}
    for member, batch in zip(members, batches, strict=True):
        of_group, matchers_of_group = groups.setdefault(batch and batch[0], ([], []))
        of_group.append(member)
        if batch is not None:
            matchers_of_group.append(batch[1])
    return [(filler, of_group, matchers) for filler, (of_group, matchers) in groups.items()]


def words_of(grammars: Sequence[StructuredOutputGrammar | None], groups: Sequence[Group], words: int) -> set[int]:
    """The lengths of the rows that grammars fill; `words` for those that do not tell."""
    # Those that an engine fills together are of one vocabulary.
    asked = [member for filler, members, _ in groups for member in (members if filler is None else members[:1])]
    return {getattr(grammars[member], "words", words) for member in asked}


def fill_together(
    filler: BatchFiller, matchers: Sequence[Matcher], view: Bitmask, rows: Sequence[int], usual_ids: range
) -> Sequence[int]:
    """Fill rows by one native call. Returns the places in `rows` that must be filled again alone, to find errors."""
    try:
        filler.fill_rows(matchers, view, rows)
    except Exception:  # whose fault it was shows when they are filled one by one
        return range(len(rows))
    return empty_rows(filler, view, rows, usual_ids)


def empty_rows(filler: BatchFiller, view: Bitmask, rows: Sequence[int], usual_ids: range) -> Sequence[int]:
    """Places in `rows` of those without any bit; most that have some have one among the usual ids."""
    if getattr(filler, "finds_dead_ends", False):
        return ()
    array, where = view.array, _as_slice(rows)
    shown = array[where, usual_ids.start >> 5]
    for word in range((usual_ids.start >> 5) + 1, ((usual_ids.stop - 1) >> 5) + 1):
        shown = shown | array[where, word]
    if shown.all():
        return ()
    return [place for place in np.flatnonzero(shown == 0).tolist() if view.rows[rows[place]].allows_nothing()]


def _as_slice(rows: Sequence[int]) -> slice | list[int]:
    """The same rows as a slice, where they are evenly spaced: numpy then reads them several times as fast."""
    if isinstance(rows, range):
        return slice(rows.start, rows.stop, rows.step)
    if len(rows) > 1:
        step = rows[1] - rows[0]
        if step > 0 and list(rows) == list(range(rows[0], rows[0] + step * len(rows), step)):
            return slice(rows[0], rows[-1] + 1, step)
    return list(rows)
