"""Filling the rows of many grammars, of any mix of backends, in one call."""

from __future__ import annotations

from collections.abc import Sequence

from grammar_backends.contract import BatchFiller, BitmaskTensor, Grammar, Matcher
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
    rows = range(len(grammars)) if rows is None else rows
    if len(rows) != len(grammars) or len(set(rows)) != len(rows):
        raise BitmaskError(f"{len(grammars)} grammars need as many different rows, not {list(rows)}")
    view = Bitmask.of(bitmask)
    for words in {grammar.words for grammar in grammars}:
        check_rows(view, rows, words)
    outcomes: list[FillOutcome] = [None] * len(grammars)
    groups, alone = _grouped(grammars)
    for filler, members in groups.items():
        targets = [rows[index] for index, _ in members]
        try:
            filler.fill_rows([matcher for _, matcher in members], view, targets)
        except Exception:  # whose fault it was shows when they are filled one by one
            alone += [index for index, _ in members]
            continue
        zeros = view.zeros
        for (index, _), row in zip(members, targets, strict=True):
            memory = view.rows[row].memory
            if memory[0] == 0 and memory == zeros:
                alone.append(index)
    for index in alone:
        try:
            grammars[index].fill_bitmask(bitmask, rows[index])
        except GrammarError as error:
            view.rows[rows[index]].array.fill(0)
            outcomes[index] = error
    return outcomes


Members = list[tuple[int, Matcher]]


def _grouped(grammars: Sequence[Grammar]) -> tuple[dict[BatchFiller, Members], list[int]]:
    """Places in `grammars`: by the engine that fills them together, and those that fill alone."""
    groups: dict[BatchFiller, Members] = {}
    alone = []
    for index, grammar in enumerate(grammars):
        batch = grammar.batch
        if batch is None:
            alone.append(index)
        else:
            groups.setdefault(batch[0], []).append((index, batch[1]))
    return groups, alone
