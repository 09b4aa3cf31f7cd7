"""What does attention do in a model that reads digits?

    patches_BLD --embed + position--> x_BLE --blocks, mean over L--> logits

A small vision transformer: 16 patches of 2 × 2 pixels, two blocks of attention
and a two-layer network, no class token. Its attention is any function with the
contract of `attention_lab.contract`, so every step of this book can run in it.

Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", section 3.1;
blocks normalised first, Xiong et al. 2020, figure 1b. Memory: as its attention.
Letters: B batch, L patches, E model width, H heads, D head width; D of
`patches_BLD` is the 4 pixels of a patch.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from einops import rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor, nn

from attention_lab.axes import ShapeMismatch, check_axes
from attention_lab.contract import check_tensors
from attention_lab.examples import PATCH, load_digits
from attention_lab.steps import scaled_dot_product
from attention_lab.steps.multi_head import (
    MultiHeadAttention,
    merge_heads,
    split_heads,
)

IMAGE, CLASSES = 8, 10  # 8 × 8 pixels, digits 0 to 9
PATCHES, PIXELS = (IMAGE // PATCH) ** 2, PATCH**2
E, HEADS, HIDDEN, BLOCKS = 32, 4, 128, 2
#: Every fifth image is held out, from this one on; so is the book's digit.
FOLDS, HELD_OUT = 5, 3
EPOCHS, BATCH, PEAK_RATE, DECAY = 20, 48, 4e-3, 0.05
#: How far the logits may be from each other when only the attention differs.
SAME_LOGITS = 1e-5
CHECKPOINT = Path(__file__).with_name("vision.npz")

Attention = Callable[..., Tensor]


class HeadLayout(NamedTuple):
    """How heads are cut from tokens, and how they are put back.

    `split(x_BLE, H)` gives (B, H, L, D), `merge(x_BHLD)` gives (B, L, E).
    """

    split: Callable[[Tensor, int], Tensor] = split_heads
    merge: Callable[[Tensor], Tensor] = merge_heads


RIGHT_LAYOUT = HeadLayout()


class Counted:
    """An attention that counts its calls, to prove that it is the one that ran.

    A call that raises is not counted: it made no output.

    Examples
    --------
    >>> attention = Counted(scaled_dot_product.attention)
    >>> _ = TinyViT(attention)(torch.zeros(1, 8, 8))
    >>> attention.calls == BLOCKS
    True
    """

    def __init__(self, attention: Attention) -> None:
        self.attention = attention
        self.calls = 0

    def __call__(self, *args: Any, **options: Any) -> Tensor:
        """Pass everything on, and count."""
        out_BHLD = self.attention(*args, **options)
        self.calls += 1
        return out_BHLD


class Block(nn.Module):
    """Let the patches attend to each other, then think about each alone."""

    def __init__(
        self, attention: Attention, layout: HeadLayout = RIGHT_LAYOUT
    ) -> None:
        super().__init__()
        self.attention = attention
        self.layout = layout
        self.before_heads = nn.LayerNorm(E)
        self.heads = MultiHeadAttention(E, HEADS)
        self.network = nn.Sequential(
            nn.LayerNorm(E), nn.Linear(E, HIDDEN), nn.GELU(),
            nn.Linear(HIDDEN, E),
        )  # fmt: skip

    def forward(self, x_BLE: Float[Tensor, "B L E"]) -> Float[Tensor, "B L E"]:
        """Add to every patch what it gathers, then what it makes of that."""
        q, k, v = self.project(x_BLE)
        mixed_BLE = self.layout.merge(self.attention(q, k, v))
        x_BLE = x_BLE + self.heads.out_proj(mixed_BLE)
        return x_BLE + self.network(x_BLE)

    def project(self, x_BLE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values of the heads, (B, H, L, D)."""
        x_BLE = self.before_heads(x_BLE)
        q, k, v = (
            self.layout.split(projection(x_BLE), HEADS)
            for projection in (
                self.heads.q_proj,
                self.heads.k_proj,
                self.heads.v_proj,
            )
        )
        return q, k, v


class TinyViT(nn.Module):
    """A vision transformer of 26 474 parameters for digits of 8 × 8 pixels.

    Parameters
    ----------
    attention : what mixes the patches in every block; called as
        `attention(query, key, value)` with (B, H, L, D). By default the first
        step of this book.
    layout : how every block splits and merges its heads.

    Examples
    --------
    >>> TinyViT()(torch.zeros(3, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        attention: Attention = scaled_dot_product.attention,
        layout: HeadLayout = RIGHT_LAYOUT,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(PIXELS, E)
        self.position_LE = nn.Parameter(0.02 * torch.randn(PATCHES, E))
        self.blocks = nn.ModuleList(
            Block(attention, layout) for _ in range(BLOCKS)
        )
        self.read = nn.Sequential(nn.LayerNorm(E), nn.Linear(E, CLASSES))

    def use(self, attention: Attention, block: int | None = None) -> "TinyViT":
        """Let another attention mix the patches; the weights stay.

        In all blocks, or in one.

        Raises
        ------
        ValueError
            If there is no such block.
        """
        if block is not None and block not in range(BLOCKS):
            raise ValueError(
                f"block must be from 0 to {BLOCKS - 1} or None, not {block!r}"
            )
        blocks = self.blocks if block is None else [self.blocks[block]]
        for each in blocks:
            each.attention = attention
        return self

    def forward(
        self, images: Float[Tensor, "B 8 8"]
    ) -> Float[Tensor, "B classes"]:
        """Return one logit per digit 0 … 9.

        Raises
        ------
        ShapeMismatch
            If an image is not 8 × 8 pixels.
        ValueError
            If `images` is no tensor.
        """
        x_BLE = self.tokens(images)
        for block in self.blocks:
            x_BLE = block(x_BLE)
        return self.read(reduce(x_BLE, "b l e -> b e", "mean"))

    def tokens(self, images: Float[Tensor, "B 8 8"]) -> Float[Tensor, "B L E"]:
        """Cut images into patches, embed them and add where each one is.

        Errors: as `forward`.
        """
        check_tensors(images=images)
        check_axes("images", images, ("B", "rows", "columns"))
        for axis, size in zip(
            ("rows", "columns"), images.shape[1:], strict=True
        ):
            if size != IMAGE:
                raise ShapeMismatch(
                    f"images: axis {axis} has size {size}, but the model reads "
                    f"{IMAGE}"
                )
        patches_BLD = rearrange(
            images, "b (r p) (c q) -> b (r c) (p q)", p=PATCH, q=PATCH
        )
        return self.embed(patches_BLD) + self.position_LE


class Digits(NamedTuple):
    """Images of 8 × 8 pixels with values from 0 to 1, and what they show."""

    images: Float[Tensor, "B 8 8"]
    labels: Int[Tensor, "B"]


def load_split() -> tuple[Digits, Digits]:
    """Return the digits to train on and those held out.

    Held out is every fifth image, 3, 8, 13, …, and so the book's digit 13. The
    same people wrote both parts: the accuracy is not that on new handwriting.

    References
    ----------
    `attention_lab.examples.load_digits`

    Examples
    --------
    >>> [len(part.labels) for part in load_split()]
    [1438, 359]
    """
    images, labels = (torch.tensor(part) for part in load_digits())
    held = torch.arange(len(labels)) % FOLDS == HELD_OUT
    return (
        Digits(images[~held], labels[~held]),
        Digits(images[held], labels[held]),
    )


def without_head(attention: Attention, head: int) -> Attention:
    """Return the same attention with one head whose output is 0.

    Raises
    ------
    ValueError
        When called on queries that have no such head.

    Examples
    --------
    >>> x = torch.ones(1, 2, 1, 1)
    >>> attend = without_head(scaled_dot_product.attention, 0)
    >>> attend(x, x, x).flatten().tolist()
    [0.0, 1.0]
    """

    def attend(*args: Any, **options: Any) -> Tensor:
        out_BHLD = attention(*args, **options)
        H = out_BHLD.shape[1]
        if head not in range(H):
            raise ValueError(
                f"head must be from 0 to {H - 1}, the last of H = {H}, not "
                f"{head!r}"
            )
        is_on_H = torch.arange(H, device=out_BHLD.device) != head
        return out_BHLD * is_on_H[:, None, None]

    return attend


def untrained(
    seed: int = 0,
    attention: Attention = scaled_dot_product.attention,
    layout: HeadLayout = RIGHT_LAYOUT,
) -> TinyViT:
    """Return a model with random weights; the global generator stays as it is.

    Examples
    --------
    >>> sum(p.numel() for p in untrained().parameters())
    26474
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyViT(attention, layout)


def train(
    seed: int = 0,
    epochs: int = EPOCHS,
    attention: Attention = scaled_dot_product.attention,
    layout: HeadLayout = RIGHT_LAYOUT,
) -> TinyViT:
    """Train a model on the digits that are not held out.

    AdamW with one cycle of the learning rate, on the CPU: seconds.

    Raises
    ------
    ValueError
        If `epochs` is less than 1.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, not {epochs}")
    model = untrained(seed, attention, layout)
    digits, _ = load_split()
    order = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(digits.labels) // BATCH)
    optimizer = torch.optim.AdamW(
        model.parameters(), PEAK_RATE, weight_decay=DECAY
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_RATE, total_steps=steps
    )
    with one_thread():
        for _ in range(epochs):
            shuffled = torch.randperm(len(digits.labels), generator=order)
            for batch in shuffled.split(BATCH):
                logits = model(digits.images[batch])
                loss = nn.functional.cross_entropy(logits, digits.labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
    return model.eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: for so small a model more of them only wait.

    It also fixes the order of every sum, so that a seed gives the same weights
    on machines with more and with fewer cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def accuracy(model: TinyViT, digits: Digits | None = None) -> float:
    """Return which share of the digits the model names rightly.

    By default of those held out.
    """
    images, labels = load_split()[1] if digits is None else digits
    return (model(images).argmax(dim=1) == labels).double().mean().item()


def save_checkpoint(
    model: TinyViT, provenance: dict[str, Any], path: Path = CHECKPOINT
) -> None:
    """Write the weights and where they come from; no pickle."""
    arrays = {name: x.numpy() for name, x in model.state_dict().items()}
    np.savez(path, provenance=json.dumps(provenance), **arrays)


def load_checkpoint(
    attention: Attention = scaled_dot_product.attention,
    path: Path = CHECKPOINT,
) -> tuple[TinyViT, dict[str, Any]]:
    """Return the trained model of this book, and where it comes from.

    Returns
    -------
    The model, and its provenance: seed, epochs, accuracy on the held-out
    digits, that of three seeds, that of models with each wrong layout of
    `steps.vision_mistakes`, and the versions it was trained with.

    Raises
    ------
    ShapeMismatch
        If the file is of a model of another size.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    provenance = json.loads(str(arrays.pop("provenance")))
    model = untrained(attention=attention)
    for name, ours in model.state_dict().items():
        theirs = arrays[name].shape if name in arrays else None
        if theirs != tuple(ours.shape):
            raise ShapeMismatch(
                f"{path.name}: {name} has shape {theirs}, but this model needs "
                f"{tuple(ours.shape)}"
            )
    model.load_state_dict({n: torch.from_numpy(x) for n, x in arrays.items()})
    return model.eval(), provenance
