"""Inputs for the flash backward pass, and both ways to run it."""

import numpy as np
import pytest
import torch

from attention_lab import masks
from attention_lab.error_bound import gradient_error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_gradients_reference
from attention_lab.steps import flash_backward as step
from attention_lab.steps import flash_backward_kernels as kernels
from attention_lab.steps.flash_forward import flash_forward, flash_forward_cuda
from cases import random_mask, tensors
from test_mistakes_are_caught import edited

MAKERS = [name for name in vars(kernels) if name.startswith("make_")]
MODES = ["plain", "causal", "lower right", "masked row", "added", "shared"]
TILES = {"TILE_L": 4, "TILE_S": 3}


def arrays(L, S, D, D_v, mode="plain", factor=1, seed=0, dtype=np.float32):
    """Return the output's gradient, q, k, v, and the options of a mode."""
    rng = np.random.default_rng(seed + 1)
    H_kv = 2 if mode == "shared" else 4
    q, k, v = example_qkv(1, 4, L, S, D, D_v, H_kv, seed, dtype)
    out_grad = rng.standard_normal((1, 4, L, D_v)).astype(dtype)
    options = {
        "plain": {},
        "causal": {"is_causal": True},
        "lower right": {"attn_mask": masks.causal(L, S, "lower_right")},
        "masked row": {"attn_mask": random_mask((1, 4, L, S))},
        "added": {"attn_mask": rng.standard_normal((L, S)).astype(dtype)},
        "shared": {"enable_gqa": True},
    }[mode]
    return (out_grad, q * dtype(factor), k, v), options


def with_tensors(options):
    return {
        name: torch.tensor(x) if isinstance(x, np.ndarray) else x
        for name, x in options.items()
    }


def in_pytorch(out_grad, q, k, v, options, **tiles):
    options = with_tensors(options)
    out_grad, q, k, v = tensors(out_grad, q, k, v)
    out, lse = flash_forward(q, k, v, **options, **TILES)
    return step.flash_backward(out_grad, q, k, v, out, lse, **options, **tiles)


def in_kernels(out_grad, q, k, v, options, **tiles):
    out, lse = flash_forward_cuda(q, k, v, **options)
    return step.flash_backward_cuda(
        out_grad, q, k, v, out, lse, **options, **tiles
    )


def assert_right(found, given, options):
    """Compare three gradients with the reference, within the bound."""
    exact = attention_gradients_reference(*given, **options)
    bounds = gradient_error_bound(*given, **options)
    for got, right, bound in zip(found, exact, bounds, strict=True):
        np.testing.assert_allclose(got, right, atol=bound, rtol=0)


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Return what builds all kernels again with one line changed."""

    def replace(where, old, new):
        for name in MAKERS:
            make = getattr(kernels, name)
            make = getattr(make, "__wrapped__", make)  # without its cache
            if name == where:
                make = broken(make, old, new, tmp_path)
            monkeypatch.setattr(kernels, name, make)
            if hasattr(step, name):
                monkeypatch.setattr(step, name, make)

    return replace


def broken(make, old, new, folder):
    def make_broken(*kind):
        return edited(make(*kind), old, new, folder)

    return make_broken
