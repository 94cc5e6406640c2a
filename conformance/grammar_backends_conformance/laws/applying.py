"""Masks on their way to the logits: every implementation, every type of logits, any mapping of rows."""

from __future__ import annotations

import torch

from grammar_backends.contract import allocate_bitmask, unpack_ids
from grammar_backends.errors import DeadEnd
from grammar_backends.kernels.apply import available_implementations
from grammar_backends.kernels.call import prepare
from grammar_backends_conformance.laws.applied import DTYPES
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import EVERY_VOCABULARY, law

SPARE = 2
"""Logits rows that no mask is for."""


@law("H8", "only-listed-rows-change", vocabularies=EVERY_VOCABULARY)
def only_the_listed_rows_change(lab: Lab) -> None:
    """Applied to rows of a batch in any order, the masks of several grammars leave in each row exactly the tokens of
    its mask, with the values they had, and every bit of the rows that are not listed."""
    grammars = [lab.grammar(sample.spec, text) for sample in lab.samples[:4] for text in sample.texts[:2]]
    bitmask = allocate_bitmask(len(grammars), lab.vocabulary.width)
    for row, grammar in enumerate(grammars):
        grammar.fill_bitmask(bitmask, row)
    allowed = [set(unpack_ids(bitmask[row])) for row in range(len(grammars))]
    indices = [len(grammars) + SPARE - 1 - row for row in range(len(grammars))]
    shape = len(grammars) + SPARE, lab.vocabulary.width
    for implementation in available_implementations():
        for dtype in DTYPES:
            before = torch.linspace(-20, 20, shape[0] * shape[1]).reshape(shape).to(dtype).to(implementation.device)
            logits = before.clone()
            implementation.run(prepare(logits, bitmask.to(implementation.device), indices=indices))
            kept = (logits == before).cpu()
            name = f"{implementation.name}, {dtype}"
            for row, ids in zip(indices, allowed, strict=True):
                lab.equal(
                    set(torch.nonzero(kept[row]).flatten().tolist()), ids, f"{name}: other logits than the mask's"
                )
            lab.demand(bool(kept[:SPARE].all()), f"{name}: rows that are not listed changed", "untouched", "changed")
            finite = torch.isfinite(logits).sum().item()
            expected = sum(map(len, allowed)) + SPARE * shape[1]
            lab.equal(finite, expected, f"{name}: masked logits are not all -inf")


@law("H11", "something-stays-finite")
def every_applied_row_keeps_a_finite_logit(lab: Lab) -> None:
    """A row that was filled always leaves a finite logit: where none would remain, filling raises instead (A14)."""
    for sample in lab.samples:
        for text in (*sample.partial, *sample.texts):
            for stops in (lab.vocabulary.stop_ids, lab.encode(sample.longest)[-1:]):
                grammar = lab.new_grammar(sample.spec, stop_token_ids=stops)
                grammar.accept_tokens("r", lab.encode(text))
                try:
                    row = lab.row(grammar)
                except DeadEnd:
                    continue
                lab.demand(bool(row.any()), f"a row without any token was filled after {text!r}", "a token", "none")
