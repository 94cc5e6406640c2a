"""Filling the rows of many grammars, of any mix of backends, in one call."""

from __future__ import annotations

from collections.abc import Sequence

from grammar_backends.contract import BatchFiller, BitmaskTensor, Grammar
from grammar_backends.contract.bitmask import Bitmask, check_rows
from grammar_backends.errors import BitmaskError, GrammarError

__all__ = ["FillOutcome", "fill_bitmasks"]

FillOutcome = GrammarError | None


def fill_bitmasks(
    grammars: Sequence[Grammar], bitmask: BitmaskTensor, rows: Sequence[int] | None = None
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
    for words in {grammar.words for grammar in grammars}:
        check_rows(view, rows, words)
    alone = []
    for filler, members in _by_filler(grammars).items():
        if filler is None or not _fill_together(filler, grammars, members, view, rows):
            alone += members
        else:
            alone += [index for index in members if view.rows[rows[index]].memory == view.zeros]
    outcomes: list[FillOutcome] = [None] * len(grammars)
    for index in alone:
        try:
            grammars[index].fill_bitmask(bitmask, rows[index])
        except GrammarError as error:
            view.rows[rows[index]].array.fill(0)
            outcomes[index] = error
    return outcomes


def _by_filler(grammars: Sequence[Grammar]) -> dict[BatchFiller | None, list[int]]:
    """Places in `grammars` by the engine that fills them together; under None those that fill alone."""
    fillers = [batch and batch[0] for batch in [grammar.batch for grammar in grammars]]
    groups: dict[BatchFiller | None, list[int]] = {filler: [] for filler in fillers}
    if len(groups) == 1:
        return {filler: list(range(len(grammars))) for filler in groups}
    for index, filler in enumerate(fillers):
        groups[filler].append(index)
    return groups


def _fill_together(
    filler: BatchFiller, grammars: Sequence[Grammar], members: Sequence[int], view: Bitmask, rows: Sequence[int]
) -> bool:
    matchers = [batch[1] for batch in [grammars[index].batch for index in members] if batch]
    try:
        filler.fill_rows(matchers, view, [rows[index] for index in members])
    except Exception:  # whose fault it was shows when they are filled one by one
        return False
    return True
