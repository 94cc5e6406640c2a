"""The packed row layout, and the views of a tensor's memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

from grammar_backends.contract import (
    Bitmask,
    allocate_bitmask,
    count_allowed,
    pack_ids,
    reset_bitmask,
    row_words,
    unpack_ids,
)
from grammar_backends.contract.bitmask import check_rows
from grammar_backends.errors import BitmaskError

WIDTHS = (1, 31, 32, 33, 64, 100)


@pytest.mark.parametrize("width", WIDTHS)
def test_f1_bit_t_is_bit_t_mod_32_of_word_t_div_32(width: int) -> None:
    for id_ in range(width):
        row = pack_ids([id_], width)
        assert row.shape == (row_words(width),)
        assert row.dtype == np.int32
        assert row[id_ // 32] == np.uint32(1 << (id_ % 32)).view(np.int32)
        assert np.count_nonzero(row) == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_f1_unpack_and_count_invert_pack(width: int) -> None:
    for ids in ([], [0], [width - 1], range(0, width, 3), range(width)):
        row = pack_ids(ids, width)
        assert unpack_ids(row) == list(ids)
        assert unpack_ids(torch.from_numpy(row)) == list(ids)
        assert count_allowed(row) == len(ids)


def test_f2_a_new_bitmask_and_a_reset_one_constrain_nothing() -> None:
    bitmask = allocate_bitmask(3, 33)
    assert (bitmask.shape, bitmask.dtype) == ((3, 2), torch.int32)
    assert (bitmask == -1).all()
    bitmask.zero_()
    reset_bitmask(bitmask)
    assert (bitmask == -1).all()
    assert allocate_bitmask(0, 33).shape == (0, 2)


@pytest.mark.parametrize(("rows", "width"), [(-1, 32), (1, 0), (1, -5)])
def test_a_bitmask_of_impossible_size_is_refused(rows: int, width: int) -> None:
    with pytest.raises(BitmaskError):
        allocate_bitmask(rows, width)


@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize("words", [1, 2, 3, 8])
def test_a_view_shows_the_tensors_own_memory(rows: int, words: int) -> None:
    for bitmask in (torch.zeros((rows, words), dtype=torch.int32), np.zeros((rows, words), dtype=np.int32)):
        view = Bitmask.of(bitmask)
        assert (view.num_rows, view.words, len(view.rows)) == (rows, words, rows)
        for index, row in view.rows.items():
            assert row.allows_nothing()
            row.array[-1] = index + 1
            assert bitmask[index, words - 1] == index + 1
            assert not row.allows_nothing()
            assert row.address == view.address + index * words * 4
            assert row.nbytes == words * 4


def test_a_tensor_keeps_its_view() -> None:
    for bitmask in (torch.zeros((2, 2), dtype=torch.int32), np.zeros((2, 2), dtype=np.int32)):
        assert Bitmask.of(bitmask) is Bitmask.of(bitmask)


def test_a_view_goes_with_its_tensor_and_does_not_keep_it() -> None:
    for make in (lambda: torch.zeros((2, 2), dtype=torch.int32), lambda: np.zeros((2, 2), dtype=np.int32)):
        bitmask = make()
        tensor, view = weakref.ref(bitmask), weakref.ref(Bitmask.of(bitmask))
        del bitmask
        gc.collect()
        assert tensor() is None
        assert view() is None


def test_tensors_that_come_and_go_never_share_a_view() -> None:
    for count in range(50):
        bitmask = np.zeros((1 + count % 3, 2), dtype=np.int32)
        view = Bitmask.of(bitmask)
        assert view.num_rows == len(bitmask)
        view.rows[0].array[0] = count
        assert bitmask[0, 0] == count


def test_an_exchanged_storage_gets_a_new_view() -> None:
    bitmask = torch.zeros((2, 2), dtype=torch.int32)
    before = Bitmask.of(bitmask)
    bitmask.share_memory_()
    after = Bitmask.of(bitmask)
    assert after is not before
    after.rows[1].array[1] = 7
    assert bitmask[1, 1] == 7
    assert Bitmask.of(bitmask) is after


def test_a20_what_is_no_bitmask_is_refused() -> None:
    frozen = np.zeros((2, 2), dtype=np.int32)
    frozen.flags.writeable = False
    wrong = [
        torch.zeros((2, 2)),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros((2, 2, 2), dtype=torch.int32),
        torch.zeros((2, 4), dtype=torch.int32)[:, ::2],
        torch.zeros((4, 2), dtype=torch.int32)[::2],
        torch.zeros((2, 3), dtype=torch.int32).t(),
        torch.zeros((2, 2), dtype=torch.int32, device="meta"),
        np.zeros((2, 2), dtype=np.uint32),
        np.zeros((2, 2), dtype=">i4"),
        frozen,
        [[0, 0]],
        None,
    ]
    for bitmask in wrong:
        with pytest.raises(BitmaskError):
            Bitmask.of(bitmask)  # type: ignore[arg-type]


def test_a20_rows_and_words_are_checked() -> None:
    view = Bitmask.of(torch.zeros((2, 2), dtype=torch.int32))
    check_rows(view, (0, 1), 2)
    for rows, words in (((2,), 2), ((-1,), 2), ((0, 5), 2), ((), 3)):
        with pytest.raises(BitmaskError):
            check_rows(view, rows, words)
