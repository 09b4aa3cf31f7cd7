"""What a real GPU would make of a kernel, found without one.

NVIDIA's compiler needs neither a GPU nor a driver. It says what no run on a
CPU can: how many registers a thread takes, whether they spill to memory,
whether a bare literal turned the arithmetic to float64, and it refuses what
a GPU would refuse.
"""

import ast
import json
import os
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attention_lab.gpu.device_names import (
    device_path,
    dtype_of,
    is_cuda_module,
)
from attention_lab.gpu.errors import (
    CompileRefused,
    CompilerMissing,
    KernelError,
)
from attention_lab.gpu.frames import own_names
from attention_lab.gpu.kernel_source import (
    KernelSource,
    Missing,
    kernel_function,
    python_function,
)
from attention_lab.gpu.limits import MAX_SHARED_BYTES
from attention_lab.gpu.signatures import capability, type_texts

WHEELS = (
    'pip install "numba-cuda[cu12]" nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm'
)
# Set this to a Python that has the wheels, to keep them out of this one.
PYTHON_VARIABLE = "ATTENTION_LAB_COMPILER_PYTHON"
_F64 = re.compile(
    r"^\s*(?:@!?%p\d+\s+)?(?!ld\.|st\.|mov\.)\w[\w.]*\.f64\b", re.M
)
_FMA = re.compile(r"\bfma\.\w+(?:\.ftz)?(?:\.sat)?\.f32\b")
_TENSOR_PTX = re.compile(r"\b(?:mma\.sync|wmma\.mma|wgmma\.mma_async)")
_TENSOR_SASS = re.compile(r"\b(?:HMMA|IMMA|DMMA|HGMMA|QGMMA)\b")


@dataclass(frozen=True)
class CompileCard:
    """What the compiler says about a kernel on one architecture.

    Attributes
    ----------
    kernel : its name
    cc : the compute capability, such as (7, 5) for a T4
    registers : per thread
    spill_bytes : stored to and loaded from memory for want of registers
    shared_bytes : static shared memory of a block
    f64_instructions : PTX instructions that compute in float64
    fma_f32_instructions : PTX fused multiply-adds in float32
    tensor_core_instructions : SASS instructions, or PTX without a dump
    ptx : the virtual assembly
    sass : the machine code; "" if cuobjdump is not installed
    """

    kernel: str
    cc: tuple
    registers: int
    spill_bytes: int
    shared_bytes: int
    f64_instructions: int
    fma_f32_instructions: int
    tensor_core_instructions: int
    ptx: str
    sass: str

    def __str__(self):
        """Return the facts in one line."""
        return (
            f"{self.kernel} on sm_{self.cc[0]}{self.cc[1]}: "
            f"{self.registers} registers, {self.spill_bytes} bytes spilled, "
            f"{self.shared_bytes} bytes of shared memory, "
            f"{self.f64_instructions} float64 and "
            f"{self.fma_f32_instructions} fused float32 instructions, "
            f"{self.tensor_core_instructions} on tensor cores"
        )


def compile_card(kernel, signature, cc=(7, 5)):
    """Compile a kernel for a GPU that need not be there.

    Parameters
    ----------
    kernel : a kernel of this package or of Numba, or a plain function
    signature : one entry per argument: an array or number to be like, a
        Numba type, or text such as ``"float32[:, ::1]"``; or all of it as
        one text such as ``"void(float32[:], int64)"``
    cc : compute capability: (7, 5) T4, (8, 0) A100, (9, 0) H100

    Returns
    -------
    A `CompileCard`.

    Raises
    ------
    CompilerMissing
        If the CUDA wheels are not installed; says how to install them.
    CompileRefused
        If the kernel does not compile. The kind is
        "too-much-shared-memory" where that is the reason.
    """
    (card,) = compile_cards([(kernel, signature, cc)])
    if isinstance(card, KernelError):
        raise card
    return card


def compile_cards(jobs):
    """Compile many kernels in one process; starting one takes a second.

    Parameters
    ----------
    jobs : (kernel, signature, cc) of each, as for `compile_card`

    Returns
    -------
    For each job its `CompileCard`, or the `CompileRefused` that says why
    there is none.

    Raises
    ------
    CompilerMissing
        If the CUDA wheels are not installed.
    """
    jobs = [
        (kernel_function(k), k, type_texts(s), capability(cc))
        for k, s, cc in jobs
    ]
    answers = ask([request_for(*job) for job in jobs])
    made = []
    for (function, _, _, cc), answer in zip(jobs, answers, strict=True):
        if "missing" in answer:
            raise CompilerMissing(
                f"compiling for a GPU needs {answer['missing']}, which is "
                f"not installed: {WHEELS} (about 850 MB; Linux x86-64)"
            )
        if "error" in answer:
            made.append(refusal(function.__name__, answer))
        else:
            made.append(read_card(function.__name__, cc, answer))
    return made


def request_for(function, kernel, signature, cc):
    """Return what the worker needs to know about one job."""
    options = getattr(kernel, "targetoptions", None) or {}
    functions = []
    collect(function, False, functions, {})
    return {
        "kernel": functions[-1]["key"],
        "functions": functions,
        "signature": signature,
        "cc": list(cc),
        "fastmath": bool(options.get("fastmath", False)),
    }


def ask(requests):
    """Let the worker compile, in a process of its own."""
    python = os.environ.get(PYTHON_VARIABLE, sys.executable)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NUMBA_ENABLE_CUDASIM", "PYTHONPATH")
    }
    worker = Path(__file__).with_name("compile_worker.py")
    done = subprocess.run(
        # -I: the package's folder holds modules that must not hide others.
        [python, "-I", str(worker)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        raise CompilerMissing(
            f"the compiler process failed: {done.stderr.strip()[-500:]}. "
            f"Reinstall the CUDA wheels: {WHEELS}"
        )
    return json.loads(done.stdout)


def refusal(name, answer):
    """Return the error for a kernel that does not compile."""
    message = answer["message"]
    if "uses too much shared data" in message:
        size = re.search(r"\((0x[0-9a-f]+) bytes", message)
        used = f"{int(size.group(1), 16)} bytes" if size else "too much"
        return CompileRefused(
            f"`{name}` asks for {used} of static shared memory; a block has "
            f"{MAX_SHARED_BYTES}: use smaller tiles",
            "too-much-shared-memory",
        )
    if "shared.array" in message or "local.array" in message:
        return CompileRefused(
            f"`{name}` makes a shared or local array whose shape is not a "
            "constant. A GPU needs the size when it compiles: use a constant "
            "from the module or from the function around the kernel",
        )
    lines = [line for line in message.splitlines() if line.strip()]
    return CompileRefused(
        f"`{name}` does not compile: {answer['error']}: "
        + " ".join(lines[:6])[:600]
    )


def read_card(name, cc, answer):
    """Return the card that the compiler's output describes."""
    log, ptx, sass = answer["log"], answer["ptx"], answer["sass"]

    def total(pattern):
        return sum(int(n) for n in re.findall(pattern, log))

    tensor = _TENSOR_SASS.findall(sass) if sass else _TENSOR_PTX.findall(ptx)
    return CompileCard(
        kernel=name,
        cc=cc,
        registers=total(r"Used (\d+) registers"),
        spill_bytes=total(r"(\d+) bytes spill (?:stores|loads)"),
        shared_bytes=total(r"(\d+) bytes smem"),
        f64_instructions=len(_F64.findall(ptx)),
        fma_f32_instructions=len(_FMA.findall(ptx)),
        tensor_core_instructions=len(tensor),
        ptx=ptx,
        sass=sass,
    )


# -- describing a kernel to the worker ------------------------------------


def collect(function, device, functions, keys):
    """Add a function, after those it calls, to the list; return its key."""
    if function in keys:
        return keys[function]
    source = KernelSource(function)
    key = keys[function] = f"{function.__name__}_{len(keys)}"
    definition = source.definition
    own = own_names(definition)
    names = {}
    for node in ast.walk(definition):
        if isinstance(node, ast.Name) and node.id not in (*own, *names):
            value = source.lookup(node.id)
            if value is Missing or is_builtin(value):
                continue
            names[node.id] = describe(value, functions, keys)
    definition.decorator_list = []
    functions.append(
        {
            "key": key,
            "name": function.__name__,
            "device": device,
            "source": ast.unparse(definition),
            "names": {n: spec for n, spec in names.items() if spec},
        }
    )
    return key


def is_builtin(value):
    """Say whether a value is one of Python's built-in functions."""
    return getattr(value, "__module__", None) == "builtins" and callable(value)


def describe(value, functions, keys):
    """Return how the worker finds a value again, or None if it cannot."""
    if is_cuda_module(value) or type(value).__name__ == "CudaNamespace":
        return ["cuda", ""]
    path = device_path(value)
    if path is not None:
        return ["cuda", path]
    native = getattr(value, "native", None)
    if native is not None:
        return ["maker", list(native)]
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__]
    dtype = dtype_of(value)
    if dtype is not None:
        return ["dtype", dtype.name]
    if isinstance(value, np.generic):
        return ["numpy", [value.dtype.name, repr(value.item())]]
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["literal", value]
    if isinstance(value, tuple):
        return ["tuple", [describe(v, functions, keys) for v in value]]
    if type(value).__module__ == "builtins" and callable(value):
        return ["member", [value.__module__, value.__name__]]
    try:
        function = python_function(value)
    except KernelError:
        return None
    return ["function", collect(function, True, functions, keys)]
