"""What may be passed to a kernel, and what the kernel sees of it."""

import numpy as np

from attention_lab.gpu.errors import WrongArgument, WrongValue

KINDS = "?bhilqBHILQefd"


class DeviceArray(np.ndarray):
    """An array "on the device": the host's memory, but a copy of its own."""

    def copy_to_host(self, ary=None, stream=0):
        """Return the values as a plain array, or copy them into `ary`."""
        if ary is None:
            return np.array(self, copy=True).view(np.ndarray)
        np.copyto(ary, self.view(np.ndarray))
        return ary

    def copy_to_device(self, ary, stream=0):
        """Overwrite the values with those of `ary`."""
        np.copyto(self.view(np.ndarray), np.asarray(ary))

    @property
    def __cuda_array_interface__(self):
        """Absent: this memory is not on a GPU."""
        raise AttributeError("this array is not on a GPU")


def host_view(argument, position):
    """Return what the kernel works on, and how to copy results back.

    Parameters
    ----------
    argument : anything that may be passed to a kernel
    position : its place in the call, for messages

    Returns
    -------
    A NumPy array or a NumPy scalar, and either None (the array *is* the
    caller's memory) or a function that copies the results back.
    """
    if isinstance(argument, np.ndarray):
        view = argument.view(np.ndarray)
        if view.dtype.char not in KINDS:
            raise WrongArgument(
                f"argument {position} has dtype {view.dtype}, which kernels "
                "here cannot use: convert it to float16/32/64, an integer "
                "type or bool"
            )
        return view, None
    if isinstance(argument, np.generic):
        if argument.dtype.char not in KINDS:
            raise WrongArgument(
                f"argument {position} is a number of type {argument.dtype}, "
                "which kernels here cannot use: pass a float, an integer or "
                "a bool"
            )
        return argument, None
    if isinstance(argument, (bool, int, float)):
        if isinstance(argument, int) and not -(2**63) <= argument < 2**63:
            raise WrongValue(
                f"argument {position} is {argument}, which does not fit in "
                "64 bits"
            )
        kind = {bool: np.bool_, int: np.int64, float: np.float64}
        return kind[type(argument)](argument), None
    if hasattr(argument, "detach"):
        return _from_torch(argument, position)
    if hasattr(argument, "copy_to_host"):
        copy = argument.copy_to_host()
        return copy, lambda: argument.copy_to_device(copy)
    raise WrongArgument(
        f"argument {position} is a {type(argument).__name__}; a kernel takes "
        "arrays and numbers"
    )


def _from_torch(tensor, position):
    """Share the memory of a torch tensor, or copy it from the GPU."""
    if getattr(tensor, "requires_grad", False):
        raise WrongArgument(
            f"argument {position} is a tensor that requires a gradient: "
            "pass tensor.detach(), because a kernel is invisible to autograd"
        )
    if "bfloat16" in str(tensor.dtype):
        raise WrongArgument(
            f"argument {position} is a bfloat16 tensor, which Numba would "
            "read as float16 and get wrong numbers: pass tensor.float()"
        )
    if tensor.device.type == "cpu":
        return tensor.numpy(), None
    copy = tensor.cpu().numpy()
    # The tensor's own method builds the CPU tensor, so torch stays unimported.
    return copy, lambda: tensor.copy_(tensor.new_tensor(copy))
