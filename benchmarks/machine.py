"""What every benchmark writes beside its readings."""

import json
import os
import platform
from pathlib import Path
from typing import Any

SEED = 0


def machine(*modules: Any) -> dict[str, Any]:
    """Name the machine, and the versions of Python and of some modules."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        **{module.__name__: module.__version__ for module in modules},
    }


def processor() -> str:
    """Return the processor's name; Linux keeps it in a file."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write(path: str, data: dict[str, Any]) -> None:
    """Write readings as JSON."""
    text = json.dumps(data, indent=1) + "\n"
    Path(path).write_text(text, encoding="utf-8")
