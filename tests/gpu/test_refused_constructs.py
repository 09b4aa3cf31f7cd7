"""What kernels may not contain is refused by name, with its line."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.errors import (
    KernelError,
    KernelFault,
    UnsupportedConstruct,
)

float32 = np.float32


def floats(*shape):
    return np.zeros(shape, np.float32)


@cuda.jit
def takes_two(out, n):
    out[0] = n


@cuda.jit
def uses_try(out):
    try:
        out[0] = 1
    except ValueError:
        out[0] = 2


@cuda.jit
def uses_comprehension(out):
    values = [k + 1 for k in range(3)]
    out[0] = values[0]


@cuda.jit
def uses_dict(out):
    names = {"a": 1}
    out[0] = names["a"]


@cuda.jit
def uses_with(out):
    with out:
        pass


@cuda.jit
def returns_value(out):
    return out[0]


@cuda.jit
def wrong_rank(out):
    out[0, 0] = 1


@cuda.jit
def float_index(out):
    out[1.0] = 1


@cuda.jit
def shape_from_argument(out, n):
    s = cuda.shared.array(n, float32)
    s[0] = 1
    out[0] = s[0]


def plain_helper(x):
    return x


@cuda.jit
def calls_plain_python(out):
    out[0] = plain_helper(1)


@cuda.jit
def recursion(out):
    def forever(x):
        return forever(x)

    out[0] = forever(1)


@cuda.jit
def undefined(out):
    out[0] = nowhere


@cuda.jit
def before_assignment(out):
    out[0] = value
    value = 1  # noqa: F841


@cuda.jit
def unknown_cuda(out):
    out[0] = cuda.cg.this_grid()


@cuda.jit
def string_method(out):
    out[0] = "abc".find("b")


@cuda.jit
def two_dynamic_arrays(out):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, float32)
    a[0] = b[0] = 1
    out[0] = a[0]


ARRAY = np.ones(3, np.float32)


@cuda.jit
def global_array(out):
    i = cuda.threadIdx.x
    out[i] = ARRAY[i]


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (uses_try, "`try` statement"),
        (uses_comprehension, "[k + 1 for k in range(3)]"),
        (uses_dict, "{'a': 1}"),
        (uses_with, "`with` statement"),
        (returns_value, "returns a value"),
        (wrong_rank, "2 indices"),
        (float_index, "a floating-point number where a whole number goes"),
        (shape_from_argument, "shape `n`"),
        (calls_plain_python, "device=True"),
        (recursion, "calls itself"),
        (undefined, "`nowhere` is not defined"),
        (before_assignment, "before it has a value"),
        (unknown_cuda, "cuda.cg"),
        (string_method, "find"),
        (global_array, "Pass the array"),
        (two_dynamic_arrays, "both begin at the same address"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_not_handled_is_refused_with_its_line(kernel, words):
    definition = kernel.py_func.__code__
    lines = range(definition.co_firstlineno, definition.co_firstlineno + 9)
    args = [floats(3)]
    many = definition.co_argcount
    if many == 2:
        args.append(3)
    with pytest.raises(UnsupportedConstruct) as refusal:
        record(kernel, 1, 1, *args)
    message = str(refusal.value)
    assert words in message
    assert any(f"line {line}" in message for line in lines)


def test_wrong_number_of_arguments_is_named():
    with pytest.raises(KernelError, match="takes 2 arguments"):
        record(takes_two, 1, 1, floats(1))


def test_lambda_without_source_is_refused():
    namespace = {}
    exec("def kernel(out):\n    out[0] = 1\n", namespace)
    with pytest.raises(KernelError, match="source"):
        record(namespace["kernel"], 1, 1, floats(1))


@cuda.jit
def set_on_one_path(out, x):
    if x[0] > 0:
        value = x[0]
    out[0] = value


def test_variable_without_a_value_is_a_fault_with_its_line():
    x = np.array([-1.0], np.float32)
    with pytest.raises(KernelFault, match="no value on the path") as fault:
        record(set_on_one_path, 1, 1, floats(1), x)
    assert "`out[0] = value`" in str(fault.value)
    record(set_on_one_path, 1, 1, floats(1), -x)
