"""Attention, verified: every step of attention computed, drawn and checked.

Read the modules in this order:

1. `axes`: the letters that name every axis, and the errors about them.
2. `reference`: attention in float64 NumPy, slow and obvious.
3. `masks`: who may attend to whom.
4. `steps.scaled_dot_product`, `steps.multi_head`, `steps.grouped_query`,
   `steps.kv_cache`, `steps.fused_qkv`, `steps.online_softmax`,
   `steps.flash_forward`, `steps.flash_backward`, `steps.vision`: one module per
   chapter, two for shared heads; `steps.flash_attention` is the end of the
   flash chapters, an operation of PyTorch.
5. `gpu`: where the CUDA kernels run.
6. `verify`: the checks that the reader sees, and the verifier of functions,
   modules and kernels.
7. `shape_flow`: what each step of any torch callable does to axes and elements.
8. `figures`: pictures drawn from the arrays of a run.
9. `exercises`: the checks of the book's exercises.

Importing this package imports none of torch, numba and matplotlib.
"""

from attention_lab.axes import ShapeMismatch

__all__ = ["ShapeMismatch"]
__version__ = "0.1.0"
