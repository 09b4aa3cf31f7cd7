"""Ways to write a head split, a merge and the unpacking of q, k and v.

Right ones and wrong ones, each a function of x and the number of heads. The
split by view alone was found in reczoo/FuxiCTR#30, the merge without a permute
in jsbaan/transformer-from-scratch#6.

Letters: B batch, L queries, H heads, D head width, E = H·D model width,
P query, key, value.
"""

from collections.abc import Callable
from typing import NamedTuple

from einops import rearrange
from torch import Tensor


class Chain(NamedTuple):
    """One way to write it: `function(x, H)`, what it must give, what it is."""

    name: str
    function: Callable[[Tensor, int], Tensor]
    instead: str = ""
    says: str = ""
    is_fused: bool = False


def view_permute(x: Tensor, H: int) -> Tensor:
    """Name the heads inside E, then bring them in front of the tokens."""
    B, L, E = x.shape
    return x.view(B, L, H, E // H).permute(0, 2, 1, 3)


def view_alone(x: Tensor, H: int) -> Tensor:
    """Ask for the final shape at once: the wrong split."""
    B, L, E = x.shape
    return x.view(B, H, L, E // H)


def view_permute_contiguous(x: Tensor, H: int) -> Tensor:
    """Split, then copy: the memory takes the order of the heads."""
    return view_permute(x, H).contiguous()


def einops_split(x: Tensor, H: int) -> Tensor:
    """Split by a pattern, the head outside of the channel."""
    return rearrange(x, "b l (h d) -> b h l d", h=H)


def einops_channels_outside(x: Tensor, H: int) -> Tensor:
    """Split by a pattern with the letters in the brackets exchanged."""
    return rearrange(x, "b l (d h) -> b h l d", h=H)


def merge_permute_reshape(x: Tensor, H: int) -> Tensor:
    """Split, copy as attention hands it out, and merge."""
    heads = view_permute(x, H).contiguous()
    return heads.permute(0, 2, 1, 3).reshape(x.shape)


def merge_view(x: Tensor, H: int) -> Tensor:
    """Split, copy, and merge with the permute forgotten."""
    return view_permute(x, H).contiguous().view(x.shape)


def there_and_back(x: Tensor, H: int) -> Tensor:
    """Split wrongly and merge wrongly: x comes back, the heads were wrong."""
    return view_alone(x, H).view(x.shape)


def fused_phd(x: Tensor, H: int) -> Tensor:
    """Unpack rows stacked as (p h d): all of q, then k, then v."""
    return rearrange(x, "b l (p h d) -> p b h l d", p=3, h=H)


def fused_hpd(x: Tensor, H: int) -> Tensor:
    """Unpack the same rows as if they were stacked (h p d)."""
    return rearrange(x, "b l (h p d) -> p b h l d", p=3, h=H)


CHAINS = (
    Chain("split: view, permute", view_permute),
    Chain(
        "split: view alone",
        view_alone,
        "split: view, permute",
        "The shape is right, but a view keeps the order of memory, and memory "
        "has the tokens outside. A head gets whole tokens, cut into pieces.",
    ),
    Chain("split: view, permute, contiguous", view_permute_contiguous),
    Chain("split: einops, (h d)", einops_split),
    Chain(
        "split: einops, (d h)",
        einops_channels_outside,
        "split: einops, (h d)",
        "The letters in the brackets are exchanged, so the channels are dealt "
        "out to the heads like cards.",
    ),
    Chain("split, copy, merge: permute, reshape", merge_permute_reshape),
    Chain(
        "split, copy, merge: view alone",
        merge_view,
        "split, copy, merge: permute, reshape",
        "The copy has the heads outside. Without the permute a row of the "
        "result holds several tokens of one head.",
    ),
    Chain(
        "view there and back",
        there_and_back,
        "split, copy, merge: permute, reshape",
        "Two views undo each other, so x comes back whole. The heads between "
        "them were wrong: a round trip proves nothing.",
    ),
    Chain("fused q, k, v: (p h d)", fused_phd, is_fused=True),
    Chain(
        "fused q, k, v: (h p d)",
        fused_hpd,
        "fused q, k, v: (p h d)",
        "The rows were stacked (p h d) and are read (h p d), so q holds "
        "elements of k and v.",
        is_fused=True,
    ),
)
