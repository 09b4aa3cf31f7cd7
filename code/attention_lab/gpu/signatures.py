"""The types of a kernel's arguments as text, and the architecture."""

import re

import numpy as np

from attention_lab.gpu.arguments import KINDS
from attention_lab.gpu.device_names import dtype_of
from attention_lab.gpu.errors import WrongArgument, WrongValue

DTYPES = tuple(np.dtype(kind).name for kind in KINDS)
_TYPE = re.compile(r"(\w+)(\[:(,:)*(:1)?\])?")
_WHOLE = re.compile(r"\s*(\w+)?\s*\((.*)\)\s*")
_ADVICE = (
    "pass one entry per argument, such as "
    '("float32[:, ::1]", "int64"), or "void(float32[:, ::1], int64)"'
)


def capability(cc):
    """Return a compute capability as two whole numbers.

    Raises
    ------
    WrongArgument
        If it is anything else.
    """
    if (
        not isinstance(cc, (tuple, list))
        or len(cc) != 2
        or not all(isinstance(part, (int, np.integer)) for part in cc)
    ):
        raise WrongArgument(
            f"cc is {cc!r}; it must be two whole numbers, such as (7, 5) for "
            "a T4, (8, 0) for an A100 or (9, 0) for an H100"
        )
    return int(cc[0]), int(cc[1])


def type_texts(signature):
    """Return the text of every argument's type.

    Parameters
    ----------
    signature : one entry per argument, or one text as Numba takes it

    Raises
    ------
    WrongArgument, WrongValue
        If it is not a signature of a kernel.
    """
    if isinstance(signature, str):
        return [checked_text(item) for item in split_signature(signature)]
    if hasattr(signature, "return_type") and hasattr(signature, "args"):
        signature = signature.args  # a signature made of Numba's types
    if not isinstance(signature, (tuple, list)):
        raise WrongArgument(f"the signature is {signature!r}: {_ADVICE}")
    return [type_text(item) for item in signature]


def split_signature(text):
    """Return the types in a text such as ``"void(float32[:], int64)"``."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise WrongValue(f"the signature is {text!r}: {_ADVICE}")
    returned, inside = found.groups()
    if returned not in (None, "void", "none"):
        raise WrongValue(
            f"the signature {text!r} returns {returned}, and a kernel returns "
            "nothing: write void(...)"
        )
    if not inside.strip():
        return []
    return re.split(r",(?![^\[]*\])", inside)


def checked_text(text):
    """Return the text of one type without spaces, if it is one."""
    plain = text.replace(" ", "")
    found = _TYPE.fullmatch(plain)
    if found is None:
        raise WrongValue(f"{text!r} is not the type of an argument: {_ADVICE}")
    name = {"boolean": "bool"}.get(found.group(1), found.group(1))
    if name not in DTYPES:
        raise WrongValue(
            f"{text!r} is not the type of an argument: a kernel takes "
            + ", ".join(dict.fromkeys(DTYPES))
        )
    return plain


def type_text(item):
    """Return the text of an argument's type."""
    if isinstance(item, str):
        return checked_text(item)
    if isinstance(item, np.ndarray):
        checked_text(item.dtype.name)
        return array_text(item.dtype, item.ndim, item.flags.c_contiguous)
    if isinstance(item, np.generic):
        return checked_text(item.dtype.name)
    if isinstance(item, (bool, int, float)):
        return {bool: "bool", int: "int64", float: "float64"}[type(item)]
    dtype = dtype_of(item)
    if dtype is not None:
        return dtype.name
    if hasattr(item, "layout") and hasattr(item, "ndim"):
        return array_text(dtype_of(item.dtype), item.ndim, item.layout == "C")
    raise WrongArgument(
        f"{item!r} does not name the type of an argument: pass an array, a "
        'number, a Numba type, or text such as "float32[:, ::1]"'
    )


def array_text(dtype, ndim, contiguous):
    """Return the text of an array type."""
    last = "::1" if contiguous else ":"
    return f"{dtype.name}[{','.join([':'] * (ndim - 1) + [last])}]"
