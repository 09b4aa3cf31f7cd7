"""Compile kernels for a GPU, in a process of its own.

Run by `compile_card` as a script: reads JSON from standard input, writes
JSON to standard output. It imports Numba's real CUDA target, which cannot
share a process with the simulator, and nothing of this package, so that
any Python with the CUDA wheels can run it.
"""

import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import warnings
from pathlib import Path

# What Numba raises when a library of the CUDA toolkit is not there.
ABSENT = ("CudaSupportError", "NvvmSupportError", "DynamicLibNotFoundError")


def main():
    """Answer a list of requests."""
    warnings.simplefilter("ignore")
    json.dump([answer(request) for request in json.load(sys.stdin)], sys.stdout)


def answer(request):
    """Return what there is to say about one request."""
    try:
        return compiled(request)
    except ToolMissing as missing:
        return {"missing": str(missing)}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


class ToolMissing(Exception):  # noqa: N818 - its message is the answer
    """A part of the CUDA toolkit is not installed."""


def compiled(request):
    """Return what the compiler says about one kernel."""
    try:
        from numba import cuda
    except ImportError as error:
        raise ToolMissing(f"Numba's CUDA target ({error})") from None
    if importlib.util.find_spec("numba_cuda") is None:
        # The CUDA target inside Numba itself is no longer maintained.
        raise ToolMissing("the package numba-cuda")
    assembler = tool("ptxas")
    if assembler is None:
        raise ToolMissing("ptxas")
    cc = tuple(request["cc"])
    pretend_device(cc)
    try:
        functions = build(request["functions"], cuda)
        kernel = functions[request["kernel"]]
        signature = tuple(numba_type(text) for text in request["signature"])
        ptx, _ = cuda.compile_ptx(
            kernel, signature, cc=cc, fastmath=request["fastmath"]
        )
    except Exception as error:
        if type(error).__name__ in ABSENT:
            raise ToolMissing(
                f"the CUDA toolkit ({str(error).split(':')[0]})"
            ) from None
        raise
    with tempfile.TemporaryDirectory() as folder:
        return {"ptx": ptx, **assemble(ptx, cc, assembler, Path(folder))}


def pretend_device(cc):
    """Answer for the device that device functions are compiled for.

    Numba asks the driver for it, although only the number matters.
    """
    device = types.SimpleNamespace(compute_capability=cc)
    for name, module in list(sys.modules.items()):
        if "cuda" in name and hasattr(module, "get_current_device"):
            module.get_current_device = lambda: device


def assemble(ptx, cc, assembler, folder):
    """Run ptxas, and cuobjdump if there is one."""
    source, binary = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx)
    done = subprocess.run(
        [assembler, "-v", f"-arch=sm_{cc[0]}{cc[1]}", source, "-o", binary],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"error": "ptxas", "message": done.stderr.strip()}
    sass = ""
    dump, disassembler = tool("cuobjdump"), tool("nvdisasm")
    if dump is not None and disassembler is not None:
        folders = [str(Path(disassembler).parent), os.environ.get("PATH", "")]
        sass = subprocess.run(
            [dump, "-sass", binary],
            env={**os.environ, "PATH": os.pathsep.join(folders)},
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    return {"log": done.stderr, "sass": sass}


def tool(name):
    """Return the path of a CUDA tool, from a wheel or the system."""
    for place in sys.path:
        root = Path(place) / "nvidia"
        if not root.is_dir():
            continue
        for found in sorted(root.glob(f"*/bin/{name}")):
            return str(found)
    return shutil.which(name)


def build(functions, cuda):
    """Define the functions, each with its own names; return them by key."""
    made = {}
    for function in functions:
        namespace = {
            name: value_of(spec, cuda, made)
            for name, spec in function["names"].items()
        }
        filename = f"<{function['key']}>"
        exec(compile(function["source"], filename, "exec"), namespace)
        plain = namespace[function["name"]]
        made[function["key"]] = (
            cuda.jit(device=True)(plain) if function["device"] else plain
        )
    return made


def value_of(spec, cuda, made):
    """Return the value that a name stands for."""
    import numpy as np

    kind, value = spec
    if kind == "cuda":
        for part in value.split(".") if value else ():
            cuda = getattr(cuda, part)
        return cuda
    if kind == "module":
        return importlib.import_module(value)
    if kind == "member":
        module, name = value
        return getattr(importlib.import_module(module), name)
    if kind == "maker":
        path, name = value
        place = importlib.util.spec_from_file_location("native", path)
        module = importlib.util.module_from_spec(place)
        place.loader.exec_module(module)
        return getattr(module, name)()
    if kind == "dtype":
        return numba_type(value)
    if kind == "numpy":
        dtype, text = value
        return np.dtype(dtype).type(text)
    if kind == "tuple":
        return tuple(value_of(item, cuda, made) for item in value)
    if kind == "function":
        return made[value]
    return value


def numba_type(text):
    """Return the Numba type that a text such as ``float32[:, ::1]`` names."""
    import numba

    name, axes = re.fullmatch(r"(\w+)(\[.*\])?", text).groups()
    scalar = getattr(numba.types, {"bool": "boolean"}.get(name, name))
    if not axes:
        return scalar
    many = axes.count(",") + 1
    return numba.types.Array(scalar, many, "C" if "::1" in axes else "A")


if __name__ == "__main__":
    main()
