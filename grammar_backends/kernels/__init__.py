"""Applying bitmasks to logits.

::

    mapping.py      RowMapping: which mask row goes to which logits row
    call.py         prepare: validates into a Call; packed_arguments: a Call as the C struct for native code
    apply.py        apply_token_bitmask: prepares, and runs the implementation for the device
    portable.py     the implementations in numpy and in torch
    compiled.py     the implementation in compiled code for CPUs (apply_cpu.c), where it was built
    cuda/           the CUDA kernel and its launcher
    stand_in/       the CUDA kernel's source on the host, behind a stand-in for the driver
    upload.py       masks and row indices on their way to the device
    reference.py    one bit at a time: what they are all proven against
    fuzz.py         random cases, on every implementation against the reference
    verify/         the proof on a GPU, and its rehearsal

An implementation is a function of a `Call` that is not empty. A native one reads `packed_arguments(call)`, the
`Arguments` struct as C lays it out, either by value or by address; it resolves rows as `resolve_rows` does and must
give the same logits as all others, bit for bit. It is listed in `available_implementations`.
"""

from grammar_backends.kernels.apply import apply_token_bitmask
from grammar_backends.kernels.mapping import RowMapping
from grammar_backends.kernels.upload import UploadBuffers, upload

__all__ = ["RowMapping", "UploadBuffers", "apply_token_bitmask", "upload"]
