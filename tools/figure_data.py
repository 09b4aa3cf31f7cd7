"""Record the data of every interactive figure anew, or check the committed.

`tests/data/figures` holds the recordings that the book's figures are drawn
from. A page records anew, so nothing reads these files but the check: it shows
in a change's diff which numbers a change of code moved.

Libraries choose other instructions on other processors, which changes last
digits. So the recording runs in a process of its own, held to the instructions
that every x86-64 processor has, on one thread.

    python tools/figure_data.py           # write the files
    python tools/figure_data.py --check   # compare them, byte for byte
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "tests" / "data" / "figures"

#: What keeps each library from using more than the processor's baseline.
BASELINE = {
    "ATEN_CPU_CAPABILITY": "default",  # torch
    "MKL_CBWR": "COMPATIBLE",  # its matrix products
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",  # numpy's matrix products
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX512F,-FMA,-FMA4",  # exp, log
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


def recorders() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return for each file's name the function whose data it holds."""
    from attention_lab.steps.flash_theatre import record_theatre
    from attention_lab.steps.flash_theatre_backward import (
        record_theatre_backward,
    )
    from attention_lab.steps.follow_element import record_chains
    from attention_lab.steps.head_board import record_head_board
    from attention_lab.steps.kernel_runs import record_score_kernels
    from attention_lab.steps.ledger import record_ledger
    from attention_lab.steps.patch_ledger import record_patch_ledger
    from attention_lab.steps.qkv_map import record_packing_map
    from attention_lab.steps.saturation import record_saturation
    from attention_lab.steps.stage_run import STAGES, stage_run

    return {
        "flash_theatre": record_theatre,
        "flash_theatre_backward": record_theatre_backward,
        "follow_element": record_chains,
        "head_board": record_head_board,
        "kernel_lens": lambda: {
            name: json.loads(recording.to_json("request"))
            for name, recording in record_score_kernels().items()
        },
        "ledger": record_ledger,
        "packing_map": record_packing_map,
        "patch_ledger": record_patch_ledger,
        "saturation": record_saturation,
        **{
            f"stage_{stage}": lambda stage=stage: stage_run(stage)
            for stage in STAGES
        },
    }


def as_text(data: dict[str, Any]) -> str:
    """Return data as JSON, with a line for each field and each run."""
    fields = []
    for name, value in data.items():
        if isinstance(value, list):
            items = ",\n".join(map(_compact, value))
            fields.append(f"{_compact(name)}:[\n{items}\n]")
        else:
            fields.append(f"{_compact(name)}:{_compact(value)}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def record_into(folder: Path) -> None:
    """Record every figure's data with the instructions of every processor.

    Raises
    ------
    subprocess.CalledProcessError
        If the recording process fails; its traceback is on stderr.
    """
    from numpy._core._multiarray_umath import (
        __cpu_dispatch__,
        __cpu_features__,
    )

    extra = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    environment = {
        **os.environ,
        **BASELINE,
        "NPY_DISABLE_CPU_FEATURES": " ".join(extra),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "code"), os.environ.get("PYTHONPATH", "")]
        ),
    }
    subprocess.run(
        [sys.executable, __file__, "--here", str(folder)],
        env=environment,
        check=True,
    )


def stale(folder: Path, committed: Path = COMMITTED) -> list[str]:
    """Return one sentence per file in which both folders differ."""
    sentences = []
    names = {
        path.name for part in (folder, committed) for path in part.iterdir()
    }
    for name in sorted(names):
        old, new = committed / name, folder / name
        if not new.exists():
            sentences.append(f"{name}: no figure records it")
        elif not old.exists():
            sentences.append(f"{name}: is not committed")
        elif old.read_bytes() != new.read_bytes():
            place = _first_difference(old.read_text(), new.read_text())
            sentences.append(f"{name}: {place}")
    return sentences


def _first_difference(old: str, new: str) -> str:
    """Say in which line and where in it two texts part."""
    pairs = zip([*old.splitlines(), ""], [*new.splitlines(), ""], strict=False)
    for number, (before, after) in enumerate(pairs, 1):
        if before != after:
            at = len(os.path.commonprefix([before, after]))
            start = max(0, at - 20)
            return (
                f"line {number}, character {at + 1}: committed "
                f"…{before[start : at + 20]!r}, recorded now "
                f"…{after[start : at + 20]!r}"
            )
    return "only the line ends differ"


def main(arguments: list[str]) -> int:
    """Write the files, or compare them; return the exit status."""
    if arguments[:1] == ["--here"]:
        for name, record in recorders().items():
            path = Path(arguments[1], f"{name}.json")
            path.write_text(as_text(record()), encoding="utf-8", newline="\n")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        record_into(folder)
        if arguments == ["--check"]:
            sentences = stale(folder)
            print(*sentences, sep="\n", end="\n" if sentences else "")
            print(
                f"figure data: {len(list(folder.iterdir()))} recorded again, "
                f"{len(sentences)} differ"
            )
            return 1 if sentences else 0
        COMMITTED.mkdir(parents=True, exist_ok=True)
        for path in COMMITTED.iterdir():
            path.unlink()
        for path in folder.iterdir():
            (COMMITTED / path.name).write_bytes(path.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
