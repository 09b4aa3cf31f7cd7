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


def host_views(function, args):
    """Return `host_view` of all arguments of a kernel.

    Parameters
    ----------
    function : the plain Python function, for the names of its parameters
    args : what is passed to it
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    return [
        host_view(
            argument,
            f"argument {k + 1} (`{names[k]}`)"
            if k < len(names)
            else f"argument {k + 1}",
        )
        for k, argument in enumerate(args)
    ]


def host_view(argument, who="the array"):
    """Return what the kernel works on, and how to copy results back.

    Parameters
    ----------
    argument : anything that may be passed to a kernel
    who : what a message calls it

    Returns
    -------
    A NumPy array or a NumPy scalar, and either None (the array *is* the
    caller's memory) or a function that copies the results back.
    """
    copy_back = None
    if isinstance(argument, np.ndarray):
        if hasattr(argument, "mask"):
            raise WrongArgument(
                f"{who} is a masked array, and a kernel would not see the "
                "mask: pass its .data and its .mask as two arrays"
            )
        view = argument.view(np.ndarray)
    elif isinstance(argument, np.generic):
        view = argument
    elif isinstance(argument, (bool, float)):
        view = {bool: np.bool_, float: np.float64}[type(argument)](argument)
    elif isinstance(argument, int):
        view = _whole(argument, who)
    elif hasattr(argument, "detach"):
        view, copy_back = _from_torch(argument, who)
    elif hasattr(argument, "copy_to_host"):
        view = argument.copy_to_host()

        def copy_back():
            argument.copy_to_device(view)
    else:
        raise WrongArgument(
            f"{who} is a {type(argument).__name__}; a kernel takes arrays "
            "and numbers"
        )
    _check_dtype(view, who)
    return view, copy_back


def _whole(value, who):
    """Return a Python integer as Numba takes it: int64, or else uint64."""
    for kind in (np.int64, np.uint64):
        if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
            return kind(value)
    raise WrongValue(
        f"{who} is {value}, which has no room in 64 bits: pass a float, or a "
        "smaller number"
    )


def _check_dtype(view, who):
    """Refuse numbers that Numba's kernels or the recorder cannot use."""
    dtype = view.dtype
    if dtype.names:
        raise WrongArgument(
            f"{who} is structured, with the fields {', '.join(dtype.names)}, "
            "which kernels here cannot use: pass each field as an array of "
            "its own, such as numpy.ascontiguousarray(array["
            f"'{dtype.names[0]}'])"
        )
    if dtype.char not in KINDS:
        raise WrongArgument(
            f"{who} has dtype {dtype}, which kernels here cannot use: "
            f"{_ADVICE.get(dtype.kind, 'convert it to')} float16/32/64, an "
            "integer type or bool"
        )
    if not dtype.isnative:
        raise WrongArgument(
            f"{who} has dtype {dtype.str}, whose bytes are in the order that "
            "neither this computer nor a GPU uses: pass "
            f"array.astype('{dtype.name}')"
        )
    if isinstance(view, np.ndarray) and not view.flags.aligned:
        raise WrongArgument(
            f"{who} does not begin at a multiple of its element's size, "
            "where a GPU cannot read it: pass a copy, array.copy()"
        )


_ADVICE = {
    "c": "pass array.real.copy() and array.imag.copy() as two arrays of",
    "m": "view it as its numbers with array.view('int64'); kernels take",
    "M": "view it as its numbers with array.view('int64'); kernels take",
}


def check_stores(lowered, arguments):
    """Refuse to run a kernel that stores where it must not.

    Parameters
    ----------
    lowered : the `Lowered` kernel, which knows where it stores
    arguments : NumPy arrays and scalars
    """
    given = dict(zip(lowered.parameters, arguments, strict=True))
    for site in lowered.sites:
        if site.kind == "read" or site.space != "global":
            continue
        array = given[site.name]
        who = (
            f"argument {lowered.parameters.index(site.name) + 1} "
            f"(`{site.label}`)"
        )
        if not array.flags.writeable:
            raise WrongArgument(
                f"{who} is read-only, and the kernel stores into it "
                f"({site.place}): pass a copy, array.copy(), and read the "
                "results from that"
            )
        if any(
            step == 0 and size > 1
            for step, size in zip(array.strides, array.shape, strict=True)
        ):
            raise WrongArgument(
                f"{who} is expanded: several of its elements are the same "
                f"memory, and the kernel stores into it ({site.place}). Pass "
                "a copy, array.copy() or tensor.contiguous()"
            )


def _from_torch(tensor, who):
    """Share the memory of a torch tensor, or copy it from the GPU."""
    if getattr(tensor, "requires_grad", False):
        raise WrongArgument(
            f"{who} is a tensor that requires a gradient: "
            "pass tensor.detach(), because a kernel is invisible to autograd"
        )
    if "bfloat16" in str(tensor.dtype):
        raise WrongArgument(
            f"{who} is a bfloat16 tensor, which Numba would "
            "read as float16 and get wrong numbers: pass tensor.float()"
        )
    for problem, advice in _torch_problems(tensor):
        raise WrongArgument(f"{who} is a tensor {problem}: pass {advice}")
    on_cpu = tensor.device.type == "cpu"
    try:
        view = (tensor if on_cpu else tensor.cpu()).numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise WrongArgument(
            f"{who} is a {tensor.dtype} tensor that cannot be read as plain "
            f"numbers ({reason}): pass a dense float or integer tensor"
        ) from None
    if on_cpu:
        return view, None
    # The tensor's own method builds the CPU tensor, so torch stays unimported.
    return view, lambda: tensor.copy_(tensor.new_tensor(view))


def _torch_problems(tensor):
    """Yield (what a tensor is, what to pass instead)."""
    if tensor.device.type == "meta":
        yield "on the device meta, which has no values", "a real tensor"
    if "strided" not in str(getattr(tensor, "layout", "strided")):
        yield f"of layout {tensor.layout}", "tensor.to_dense()"
    if "complex" in str(tensor.dtype):
        yield (
            f"of dtype {tensor.dtype}, which kernels here cannot use",
            "torch.view_as_real(tensor.resolve_conj())",
        )
    if getattr(tensor, "is_neg", bool)():
        yield "whose values are stored negated", "tensor.resolve_neg()"
