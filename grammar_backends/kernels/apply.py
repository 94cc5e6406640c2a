"""Applies packed bitmasks to logits, in place: the one entry point, and the implementations it chooses from.

All implementations give the same logits, bit for bit (H6); `available_implementations` lists them, for whoever proves
that.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels import stand_in
from grammar_backends.kernels.call import Call, Tail, plain_call, prepare
from grammar_backends.kernels.compiled import apply_at_once, apply_compiled, why_not_compiled
from grammar_backends.kernels.cuda.launcher import apply_at_once_by_cuda, apply_by_cuda
from grammar_backends.kernels.mapping import Integers, RowMapping
from grammar_backends.kernels.portable import apply_by_numpy, apply_by_torch

__all__ = ["Implementation", "apply_token_bitmask", "available_implementations", "missing_implementations"]


class Implementation(NamedTuple):
    """One way to apply bitmasks.

    Attributes:
        name: what reports call it.
        device: where its logits and bitmasks lie.
        run: applies what `prepare` made of the arguments.
    """

    name: str
    device: str
    run: Callable[[Call], None]


def available_implementations() -> tuple[Implementation, ...]:
    """Every implementation that works on this machine, the one that is chosen for CPU tensors first."""
    found = [] if why_not_compiled() else [Implementation("compiled", "cpu", apply_compiled)]
    found += [Implementation("numpy", "cpu", apply_by_numpy), Implementation("torch on cpu", "cpu", apply_by_torch)]
    if _is_built():
        large = functools.partial(stand_in.apply_by_stand_in, blocks_per_multiprocessor=stand_in.CUT_NOTHING)
        found.append(Implementation("CUDA kernel on the host", "cpu", stand_in.apply_by_stand_in))
        found.append(Implementation("CUDA kernel on the host, large pieces", "cpu", large))
    if torch.cuda.is_available():
        found.append(Implementation("torch on cuda", "cuda", apply_by_torch))
        if cuda_kernel_refusal() is None:
            found.append(Implementation("CUDA kernel", "cuda", apply_by_cuda))
    return tuple(found)


def missing_implementations() -> dict[str, str]:
    """The implementations in native code that do not work on this machine, by name, each with the reason."""
    no_device = None if torch.cuda.is_available() else "torch finds no CUDA device"
    reasons = {"compiled": why_not_compiled(), "CUDA kernel": no_device or cuda_kernel_refusal()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


@functools.cache
def _is_built() -> bool:
    try:
        stand_in.launcher()
    except KernelError:
        return False
    return True


@functools.cache
def cuda_kernel_refusal() -> str | None:
    """Why CUDA tensors are left to torch, or None when they are not.

    A build of torch for AMD calls its devices "cuda" too, and there is no CUDA kernel for them.
    """
    if torch.version.cuda is None:
        return "torch is built without CUDA"
    try:
        logits = torch.zeros((1, 1), device="cuda")
        apply_by_cuda(prepare(logits, torch.full((1, 1), -1, dtype=torch.int32, device="cuda")))
    except KernelError as error:
        return str(error)
    return None


def apply_token_bitmask(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    *,
    indices: Integers | None = None,
    rows: RowMapping | None = None,
    tail: Tail = "mask",
    vocab_size: int | None = None,
    column_offset: int = 0,
    d2t: Integers | None = None,
) -> None:
    """Set the logits of masked tokens to -inf, in place, on the device where they are.

    ::

        for mask_row, logits_row in rows:                      # see RowMapping
            for c in range(columns):
                t = column_offset + c                          # H: vocabulary shards
                if d2t is given: t = t + d2t[t], or no token where d2t has no entry
                if t is a bit of the mask: masked = bit t of bitmask[mask_row] is 0
                else:                      masked = tail == "mask"
                if masked: logits[logits_row, c] = -inf

    The other logits keep every bit (H8), and a masked logit is never read, so that NaN is masked too. A mask wider than
    the logits is cut (H7). Nothing waits for a device.

    Args:
        logits: float32, float16 or bfloat16 ``[batch, columns]`` or ``[columns]``, any strides.
        bitmask: int32 ``[rows, words]`` or ``[words]`` on the same device, any strides.
        indices: the logits row of each mask row, -1 for none; short for ``rows=RowMapping.by_index(indices)``.
        rows: which mask row goes to which logits row; without it and `indices` they correspond one to one.
        tail: what becomes of logits for which the mask has no bit: "mask" sets them to -inf, since no token there can
            be legal; "keep" leaves them alone.
        vocab_size: how many of the mask's bits are tokens; None means all, a whole number of words.
        column_offset: the id of the first column, where the logits are one shard of the vocabulary.
        d2t: where the logits are those of a draft model with fewer tokens: int32 ``[draft ids]``, what to add to a
            draft id to get the target's id, as in checkpoints of EAGLE-3. Other integers are converted at each call.

    Raises:
        KernelError: the CUDA driver refuses the launch, or reports that an earlier kernel failed.
        BitmaskError: wrong dtype, device, number of dimensions or rows; a value in host memory that is out of range, or
            a logits row listed twice there (`RowMapping`). The logits are unchanged.
    """
    is_plain = rows is None and d2t is None and vocab_size is None and column_offset == 0 and tail == "mask"
    if is_plain and _apply_at_once(logits, bitmask, indices):
        return
    call = prepare(
        logits,
        bitmask,
        indices=indices,
        rows=rows,
        tail=tail,
        vocab_size=vocab_size,
        column_offset=column_offset,
        d2t=d2t,
    )
    if call.is_empty:
        return
    _implementation_for(logits.device.type)(call)


def _apply_at_once(logits: torch.Tensor, bitmask: torch.Tensor, indices: Integers | None) -> bool:
    """Apply what is plainly right by native code; whether that was done."""
    plain = plain_call(logits, bitmask, indices)
    if plain is None:
        return False
    if logits.is_cpu:
        return apply_at_once(plain)
    if logits.is_cuda and cuda_kernel_refusal() is None:
        apply_at_once_by_cuda(plain, logits.device.index)
        return True
    return False


@functools.cache
def _implementation_for(device_type: str) -> Callable[[Call], None]:
    if device_type == "cpu":
        return apply_by_numpy if why_not_compiled() else apply_compiled
    if device_type == "cuda":
        refusal = cuda_kernel_refusal()
        if refusal is None:
            return apply_by_cuda
        if torch.version.cuda is not None:
            warnings.warn(f"bitmasks are applied by torch, which is slower: {refusal}", RuntimeWarning, stacklevel=3)
    return apply_by_torch
