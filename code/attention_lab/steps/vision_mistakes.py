"""Does a wrong head split show in the accuracy of a model?

Two layouts of the heads that have the right shapes and the wrong elements, to
train the digits' model with. The measured accuracies are kept with the shipped
weights: `python tools/train_vision.py` makes them.

Sources: the split by view, hyunwoongko/transformer#15 and reczoo/FuxiCTR#30;
the merge without a permute, jsbaan/transformer-from-scratch#6.
Letters: B batch, L patches, H heads, D head width, E = H·D model width.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from attention_lab.steps.head_chains import view_alone
from attention_lab.steps.vision import EPOCHS, HeadLayout, accuracy, train


def merge_by_view(x_BHLD: Float[Tensor, "B H L D"]) -> Float[Tensor, "B L E"]:
    """Merge with the permute forgotten: the heads stay outside.

    Examples
    --------
    >>> import torch
    >>> x_BHLD = torch.arange(8.0).reshape(1, 2, 2, 2)
    >>> merge_by_view(x_BHLD)[0, 0].tolist()  # token 0 and token 1 of head 0
    [0.0, 1.0, 2.0, 3.0]
    """
    B, H, L, D = x_BHLD.shape
    return x_BHLD.contiguous().view(B, L, H * D)


WRONG_LAYOUTS = {
    "split by view": HeadLayout(split=view_alone),
    "merge without permute": HeadLayout(merge=merge_by_view),
}


def train_with_mistakes(
    seeds: Sequence[int], epochs: int = EPOCHS
) -> dict[str, list[float]]:
    """Train with every wrong layout; return the accuracies held out, by seed.

    Seconds per model. Errors: `steps.vision.train`.
    """
    return {
        name: [accuracy(train(seed, epochs, layout=wrong)) for seed in seeds]
        for name, wrong in WRONG_LAYOUTS.items()
    }
