"""Row mappings, column offsets, draft-to-target maps and tails: small cases by hand, many against the reference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from grammar_backends.errors import BitmaskError
from grammar_backends.kernels import RowMapping, apply_token_bitmask
from grammar_backends.kernels.apply import available_implementations
from grammar_backends.kernels.call import prepare
from grammar_backends.kernels.fuzz import differences

NONE = torch.zeros((1, 2), dtype=torch.int32)
"""A mask row that allows nothing."""


def masked_rows(mapping: RowMapping, masks: int, rows: int) -> list[int]:
    """Which logits rows each implementation masks, when no mask allows anything."""
    results = []
    for implementation in available_implementations():
        logits = torch.zeros((rows, 64), device=implementation.device)
        implementation.run(prepare(logits, NONE.expand(masks, -1).to(implementation.device), rows=mapping))
        results.append(torch.nonzero(logits.isinf().all(1)).flatten().tolist())
        assert int(logits.isinf().sum()) == 64 * len(results[-1]), implementation.name
    assert all(result == results[0] for result in results), results
    return results[0]


def test_h3_minus_one_skips_a_row_wherever_it_stands() -> None:
    assert masked_rows(RowMapping.by_index([3, -1, 0]), 3, 5) == [0, 3]
    assert masked_rows(RowMapping.by_index([3, 1, 0], mask_rows=[0, 0, -1]), 1, 5) == [1, 3]
    assert masked_rows(RowMapping.by_index(mask_rows=[0, -1, 0]), 1, 3) == [0, 2]


def test_h3_rows_are_switched_off_one_by_one() -> None:
    for switches in ([True, False, True], np.array([1, 0, 2]), torch.tensor([1, 0, 7], dtype=torch.int32)):
        assert masked_rows(RowMapping.by_index(enabled=switches), 3, 3) == [0, 2]
    assert masked_rows(RowMapping.by_index([2, 1, 0], enabled=[False, True, True]), 3, 3) == [0, 1]


def test_h3_a_step_counts_from_each_requests_first_row_up_to_the_next_requests() -> None:
    first_rows = [0, 3, 4]  # three rows, one, and the rest
    assert masked_rows(RowMapping.by_step(first_rows), 3, 6) == [0, 3, 4]
    assert masked_rows(RowMapping.by_step(first_rows, 1), 3, 6) == [1, 5]
    assert masked_rows(RowMapping.by_step(first_rows, 2), 3, 6) == [2]
    assert masked_rows(RowMapping.by_step(first_rows, 2), 3, 7) == [2, 6]  # the last request goes to the end
    assert masked_rows(RowMapping.by_step([*first_rows, 5], 1), 3, 9) == [1]  # unless its end is given
    assert masked_rows(RowMapping.by_step([0, 2, 2, 4]), 4, 6) == [0, 2, 4]  # the second request has no rows


def test_h3_a_slot_is_a_request_and_a_position_and_trimmed_positions_are_skipped() -> None:
    sums = [0, 3, 4, 4]  # three rows, one, none
    slots = [request * 4 + position for request in range(3) for position in range(4)]
    assert masked_rows(RowMapping.by_slot(slots, sums, 4), 12, 6) == [0, 1, 2, 3]
    assert masked_rows(RowMapping.by_slot([5, 4, 1, -1], sums, 4), 4, 6) == [1, 3]
    assert masked_rows(RowMapping.by_slot([4], sums, 4, mask_rows=[1]), 2, 6) == [3]


def test_h3_an_engine_may_rewrite_the_arrays_of_a_mapping() -> None:
    rows = torch.tensor([-1, -1], dtype=torch.int32)
    mapping = RowMapping.by_index(rows)
    assert masked_rows(mapping, 2, 4) == []
    rows[1] = 2
    assert masked_rows(mapping, 2, 4) == [2]


def allowed_columns(columns: int, allowed: Sequence[int], **options: Any) -> list[int]:
    """Which columns stay, of a mask of 64 bits that allows some ids, on every implementation."""
    mask = np.zeros(64, dtype=np.uint8)
    mask[list(allowed)] = 1
    bitmask = torch.from_numpy(np.packbits(mask, bitorder="little").view(np.int32))[None]
    results = []
    for implementation in available_implementations():
        logits = torch.zeros((1, columns), device=implementation.device)
        implementation.run(prepare(logits, bitmask.to(implementation.device), **options))
        results.append(torch.nonzero(logits[0] == 0).flatten().tolist())
    assert all(result == results[0] for result in results), results
    return results[0]


def test_h7_the_tail_is_masked_or_kept() -> None:
    assert allowed_columns(67, [0, 63]) == [0, 63]
    assert allowed_columns(67, [0, 63], tail="keep") == [0, 63, 64, 65, 66]
    assert allowed_columns(67, [0, 60, 63], vocab_size=61) == [0, 60]
    assert allowed_columns(64, [0, 60, 63], vocab_size=61, tail="keep") == [0, 60, 61, 62, 63]
    assert allowed_columns(5, [0], vocab_size=0) == []
    assert allowed_columns(5, [0], vocab_size=10**6) == [0]


def test_h3_a_shard_of_the_vocabulary_takes_its_slice_of_the_mask() -> None:
    allowed = [0, 5, 31, 32, 33, 62]
    for offset in (1, 31, 32, 33, 60, 64, 1000):
        expected = [id_ - offset for id_ in allowed if offset <= id_ < offset + 20]
        assert allowed_columns(20, allowed, column_offset=offset) == expected


def test_g7_draft_ids_are_looked_up_at_the_target_ids_that_d2t_leads_to() -> None:
    shifts = [0, 4, 30, -3, 100, -5]  # the target ids 0, 5, 32, 0, 104 and 0
    assert allowed_columns(6, [0, 32], d2t=shifts) == [0, 2, 3, 5]
    assert allowed_columns(6, [5], d2t=torch.tensor(shifts)) == [1]
    assert allowed_columns(8, [5], d2t=shifts, tail="keep") == [1, 4, 6, 7]  # beyond the mask, and beyond the map
    assert allowed_columns(8, [5], d2t=[*shifts, -1, -9]) == [1, 6]
    assert allowed_columns(3, [0, 32], column_offset=2, d2t=shifts) == [0, 1]


@pytest.mark.parametrize(
    ("masks", "rows", "options"),
    [
        (3, 4, {"rows": RowMapping.by_index([0, 1, 4])}),
        (3, 4, {"rows": RowMapping.by_index([0, 1, -2])}),
        (3, 4, {"rows": RowMapping.by_index([0, 1, 1])}),
        (3, 4, {"rows": RowMapping.by_index([0, 1])}),
        (3, 4, {"rows": RowMapping.by_index([0, 1], mask_rows=[0, 3])}),
        (3, 4, {"rows": RowMapping.by_index(mask_rows=[0, 0, 0])}),
        (3, 4, {"rows": RowMapping.by_step([0, 1])}),
        (3, 4, {"rows": RowMapping.by_step([0, 1, 5])}),
        (3, 4, {"rows": RowMapping.by_step([0, -1, 2])}),
        (3, 4, {"rows": RowMapping.by_slot([0, 1, 8], [0, 2, 4], 4)}),
        (3, 3, {"indices": [0, 1, 2], "rows": RowMapping()}),
        (3, 3, {"rows": [0, 1, 2]}),
        (2, 2, {"indices": [True, False]}),
        (2, 2, {"indices": (True, False)}),
        (3, 3, {"tail": "drop"}),
        (3, 3, {"vocab_size": -1}),
        (3, 3, {"vocab_size": 1.5}),
        (3, 3, {"column_offset": -1}),
        (3, 3, {"column_offset": 1.5}),
        (3, 3, {"column_offset": 2**31 - 1}),
        (3, 3, {"d2t": [[0]]}),
        (3, 3, {"d2t": [0.5]}),
        (3, 3, {"d2t": [2**31]}),
    ],
)
def test_h8_a_mapping_that_cannot_be_raises_and_changes_nothing(masks: int, rows: int, options: dict[str, Any]) -> None:
    logits = torch.zeros((rows, 64))
    with pytest.raises(BitmaskError):
        apply_token_bitmask(logits, torch.zeros((masks, 2), dtype=torch.int32), **options)
    assert not logits.any()


def test_h3_arrays_that_do_not_fit_each_other_make_no_mapping() -> None:
    with pytest.raises(BitmaskError, match=r"logits_rows \(2\), mask_rows \(3\)"):
        RowMapping.by_index([0, 1], mask_rows=[0, 1, 2])
    with pytest.raises(BitmaskError, match="step must be 0 to 2147483647, not -1"):
        RowMapping.by_step([0], -1)
    with pytest.raises(BitmaskError, match="positions_per_request must be 1 to"):
        RowMapping.by_slot([0], [0, 1], 0)
    for first_row in (0.5, True):
        with pytest.raises(BitmaskError, match="must be integers"):
            RowMapping.by_index([first_row, 1])  # type: ignore[list-item]  # what a caller may get wrong
    with pytest.raises(BitmaskError, match="one dimension"):
        RowMapping.by_index(torch.zeros((2, 2), dtype=torch.int32))


@pytest.mark.parametrize("number", [2**31, 1.5, None])
def test_h3_a_step_and_a_number_of_positions_are_integers_of_32_bits(number: Any) -> None:
    for make in (lambda: RowMapping.by_step([0], number), lambda: RowMapping.by_slot([0], [0, 1], number)):
        with pytest.raises(BitmaskError, match=r"(step|positions_per_request) must be"):
            make()
    assert RowMapping.by_step([0], np.int64(3)).step == 3  # type: ignore[arg-type]  # an integer all the same


def test_h3_bytes_are_the_numbers_that_python_takes_them_for() -> None:
    assert RowMapping.by_index(bytes([3, 0, 1, 2])).arrays["logits_rows"].tolist() == [3, 0, 1, 2]
    assert RowMapping.by_index(enabled=bytearray([1, 0, 2, 0])).arrays["enabled"].tolist() == [True, False] * 2


def test_h5_logits_that_share_memory_are_refused() -> None:
    logits = torch.zeros((1, 64)).expand(3, -1)
    with pytest.raises(BitmaskError, match="share one place"):
        apply_token_bitmask(logits, torch.zeros((3, 2), dtype=torch.int32))


def test_h5_exactly_the_strides_with_which_logits_share_memory_are_refused() -> None:
    memory = torch.zeros(64)
    for rows, columns, row_stride, column_stride in itertools.product(range(1, 4), range(1, 5), range(9), range(9)):
        places = [row * row_stride + column * column_stride for row in range(rows) for column in range(columns)]
        logits = memory.as_strided((rows, columns), (row_stride, column_stride))
        masks = torch.zeros((rows, 1), dtype=torch.int32)
        if len(set(places)) < len(places):
            with pytest.raises(BitmaskError, match="share one place"):
                apply_token_bitmask(logits, masks)
        else:
            memory.zero_()
            apply_token_bitmask(logits, masks)
            assert memory.isneginf().nonzero().flatten().tolist() == sorted(places)


def test_h6_all_implementations_give_what_the_reference_gives() -> None:
    assert next(differences(600, 0, available_implementations()), None) is None
