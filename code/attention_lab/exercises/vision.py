"""Checks of the chapter on vision."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch._dynamo  # torch loads it with the first optimizer
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from attention_lab.error_bound import rounding
from attention_lab.examples import load_digit, position_coded
from attention_lab.exercises.answers import choice, function
from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.own_work import own_work
from attention_lab.steps import vision
from attention_lab.verify.report import Check

# -- patches ---------------------------------------------------------------


def _cut_as(pattern: str) -> Any:
    return lambda images: rearrange(images, pattern, p=2, q=2)


def _examine_patches(answer: Any) -> Iterable[Check]:
    yield function(
        "patches",
        answer,
        [
            {"images": torch.tensor(position_coded(B, 8, 8)).float()}
            for B in (1, 3)
        ],
        _cut_as("b (r p) (c q) -> b (r c) (p q)"),
        called="patches_BLD",
        wrong={
            "The patches are counted column by column.": _cut_as(
                "b (r p) (c q) -> b (c r) (p q)"
            ),
            "The pixels of a patch are listed column by column.": _cut_as(
                "b (r p) (c q) -> b (r c) (q p)"
            ),
            "A patch holds every fourth pixel instead of neighbours.": _cut_as(
                "b (p r) (q c) -> b (r c) (p q)"
            ),
            "A reshape alone takes four pixels of one row.": (
                lambda images: images.reshape(len(images), 16, 4)
            ),
        },
    )


patches = Exercise(
    "vision.patches",
    _examine_patches,
    hints={
        "patches": (
            "A side of 8 pixels is 4 patches of 2: which two letters are that, "
            "and which of them is outside?",
            "Neighbouring pixels of one patch come last in each bracket on the "
            "left, and together in the last bracket on the right.",
        )
    },
)


# -- one step of training --------------------------------------------------


def _step(model: Any, images: Tensor, labels: Tensor, optimizer: Any) -> None:
    loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _step_that_adds_up(
    model: Any, images: Tensor, labels: Tensor, optimizer: Any
) -> None:
    cross_entropy(model(images), labels).backward()
    optimizer.step()


def _step_on_weights(
    model: Any, images: Tensor, labels: Tensor, optimizer: Any
) -> None:
    loss = cross_entropy(model(images).softmax(-1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _step_uphill(
    model: Any, images: Tensor, labels: Tensor, optimizer: Any
) -> None:
    optimizer.zero_grad()
    (-cross_entropy(model(images), labels)).backward()
    optimizer.step()


def _after(step: Any, steps: int) -> Tensor:
    """Return all weights of a model after some steps, in float64.

    Plain gradient descent: its steps are as large as the gradients, so that
    rounding stays rounding.
    """
    model = vision.untrained().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = _noise()
    with vision.one_thread():
        for batch in range(steps):
            part = slice(batch * 8, batch * 8 + 8)
            step(model, images[part], labels[part], optimizer)
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def _noise() -> vision.Digits:
    """Return images and labels to take steps on; they show nothing."""
    random = torch.Generator().manual_seed(0)
    images = torch.rand(24, 8, 8, generator=random, dtype=torch.float64)
    return vision.Digits(images, torch.arange(24) % vision.CLASSES)


def _examine_one_step(answer: Any) -> Iterable[Check]:
    if not callable(answer):
        yield function("weights", answer, [], _after)
        return
    right = functools.partial(_after, _step)
    yield function(
        "weights",
        functools.partial(_after, answer),
        [{"steps": 1}, {"steps": 3}],
        right,
        bound=lambda steps: rounding(right(steps)),
        called="weights",
        wrong={
            "The gradients of the step before are still there.": (
                functools.partial(_after, _step_that_adds_up)
            ),
            "cross_entropy takes logits; a softmax is part of it.": (
                functools.partial(_after, _step_on_weights)
            ),
            "The loss goes up: the step has the wrong sign.": (
                functools.partial(_after, _step_uphill)
            ),
            "No weight has changed.": lambda steps: _after(lambda *_: None, 0),
        },
    )


one_step = Exercise(
    "vision.one_step",
    _examine_one_step,
    hints={
        "weights": (
            "Four things in a row: a loss, clean gradients, new gradients, a "
            "step.",
            "`backward` adds to the gradients that are there. When must they "
            "be set to zero?",
        )
    },
)


# -- swap an attention in --------------------------------------------------


@torch.no_grad()
def _logits(attend: Any, count: int) -> Tensor:
    """Return what the trained model says of the first digits."""
    images = torch.tensor(np.stack([*map(load_digit, range(count))]))
    return vision.load_checkpoint(attend)[0](images)


def _examine_swap_in(answer: Any) -> Iterable[Check]:
    if not callable(answer):
        yield function("logits", answer, [], _logits)
        return
    attend = scaled_dot_product_attention
    check = function(
        "logits",
        lambda count: _logits(answer, count),
        [{"count": 1}, {"count": 24}],
        lambda count: _logits(attend, count),
        bound=vision.SAME_LOGITS,
        called="logits",
        wrong={
            "scale-missing": lambda n: _logits(
                lambda q, k, v: attend(q, k, v, scale=1.0), n
            ),
            "scale-model-width": lambda n: _logits(
                lambda q, k, v: attend(q, k, v, scale=vision.E**-0.5), n
            ),
            "softmax-over-queries": lambda n: _logits(
                lambda q, k, v: (k @ q.mT / q.shape[-1] ** 0.5).softmax(-1).mT
                @ v,
                n,
            ),
            "keys-used-as-values": lambda n: _logits(
                lambda q, k, v: attend(q, k, k), n
            ),
        },
    )
    yield check
    if check.passed:
        yield own_work("your own", lambda: _logits(answer, 1))


swap_in = Exercise(
    "vision.swap_in",
    _examine_swap_in,
    hints={
        "logits": (
            "Run it on queries, keys and values alone first, beside the step "
            "of the first chapter.",
            "The queries here have 8 channels. Which number of channels is in "
            "your scale, and over which axis is your softmax?",
        ),
        "your own": (
            "Scores, softmax, sum: three lines.",
            "`q @ k.mT` is the first of them, without its factor.",
        ),
    },
)


# -- a head switched off ---------------------------------------------------


def _head_off(out_BHLD: Tensor, head: int, axis: int = 1) -> Tensor:
    index = torch.tensor([head])
    return out_BHLD.index_fill(axis, index, 0.0)


def _examine_head_off(answer: Any) -> Iterable[Check]:
    yield function(
        "output",
        answer,
        [
            {
                "out_BHLD": torch.tensor(position_coded(*shape)).float() + 1,
                "head": head,
            }
            for shape, head in (
                ((2, 2, 3, 2), 0),
                ((3, 4, 5, 7), 2),
                ((3, 4, 5, 6), 1),
            )
        ],
        _head_off,
        called="out_BHLD",
        wrong={
            "This is a token, not a head.": lambda x, h: _head_off(x, h, 2),
            "This is a channel, not a head.": lambda x, h: _head_off(x, h, 3),
            "This is a sample, not a head.": lambda x, h: _head_off(x, h, 0),
        },
    )


head_off = Exercise(
    "vision.head_off",
    _examine_head_off,
    hints={
        "output": (
            "Which of the four axes counts the heads?",
            "Change a copy: the array that came in belongs to somebody else.",
        )
    },
)


# -- what was shown --------------------------------------------------------


def _examine_shown(answer: Any) -> Iterable[Check]:
    yield choice(
        "conclusion",
        answer,
        "c",
        {
            "a": "Other weights gave the same logits, so the weights alone "
            "cannot be the reason.",
            "b": "The correlation of weight and effect was small, not zero, "
            "and of one way to add weights up.",
            "d": "The gradient was not part of any experiment on this page.",
        },
    )


shown = Exercise(
    "vision.shown",
    _examine_shown,
    hints={
        "conclusion": (
            "For each sentence: which cell would have to print something else "
            "if it were false?",
            "Two sentences say more than two experiments can. One is about "
            "something that was never measured.",
        )
    },
)
