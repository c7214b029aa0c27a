"""Bitmasks as xgrammar lays them out: int32, bit i of word w is token 32 * w + i, 1 = allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from . import _engine

if TYPE_CHECKING:
    import numpy
    import torch


def get_bitmask_shape(batch_size: int, vocab_size: int) -> tuple[int, int]:
    """(batch_size, ceil(vocab_size / 32))"""
    if batch_size < 0:
        raise _engine.GrammarError(f"batch_size is {batch_size}; it must not be negative")
    if vocab_size < 1:
        raise _engine.GrammarError(f"vocab_size is {vocab_size}; give the width of the logits")
    return batch_size, (vocab_size + 31) // 32


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> torch.Tensor | numpy.ndarray:
    """An int32 bitmask [batch_size, ceil(vocab_size / 32)] that allows everything: a torch tensor
    where torch is installed, else a numpy array."""
    shape = get_bitmask_shape(batch_size, vocab_size)
    try:
        import torch
    except ImportError:
        import numpy

        return numpy.full(shape, -1, dtype=numpy.int32)
    return torch.full(shape, -1, dtype=torch.int32)


def reset_token_bitmask(bitmask: torch.Tensor | numpy.ndarray) -> None:
    """Allows everything again."""
    kind = str(getattr(bitmask, "dtype", type(bitmask).__name__))
    if kind not in ("int32", "torch.int32"):
        raise _engine.GrammarError(
            f"the bitmask holds {kind}; pass a torch tensor or a numpy array of int32"
        )
    bitmask[...] = -1


def apply_token_bitmask_inplace(
    logits: Any,
    bitmask: Any,
    *,
    vocab_size: int | None = None,
    indices: Sequence[int] | None = None,
) -> None:
    """Sets the logits of tokens that are not allowed to -inf, in place.

    logits: [batch, columns] or [columns], float16, bfloat16, float32 or float64; numpy array or
    torch tensor on any device. bitmask: int32 [batch, words] or [words]; one in the CPU's memory is
    copied to the logits' device. Columns from 32 * words on count as not allowed; with `vocab_size`
    only the columns before it change. Logits with fewer columns than `vocab_size`, or without it
    than the bitmask's last word begins at, raise GrammarError. indices: the rows to do, in both; by
    default all.
    """
    device = getattr(logits, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        _apply_on_device(logits, bitmask, vocab_size, indices)
        return
    rows = None if indices is None else list(indices)
    _engine.apply_bitmask(logits, bitmask, vocab_size, rows)


def _apply_on_device(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    vocab_size: int | None,
    indices: Sequence[int] | None,
) -> None:
    import torch

    columns = _engine.masked_columns(logits.shape[-1], bitmask.shape[-1], vocab_size)
    if indices is None:
        rows, bits = logits, bitmask
    else:
        at = torch.as_tensor(list(indices))
        rows, bits = logits[at.to(logits.device)], bitmask[at.to(bitmask.device)]
    bits = bits.to(logits.device, non_blocking=True)
    allowed = (bits.unsqueeze(-1) >> torch.arange(32, dtype=torch.int32, device=logits.device)) & 1
    forbidden = allowed.flatten(-2)[..., :columns] == 0
    rows[..., : forbidden.shape[-1]].masked_fill_(forbidden, float("-inf"))
    rows[..., forbidden.shape[-1] : columns] = float("-inf")
    if indices is not None:
        logits[at.to(logits.device)] = rows
