"""Committed readings are found, and each says where it was made."""

from importlib.resources import files

import pytest

from attention_lab.readings import read_benchmark

NAMES = [
    path.name.removesuffix(".json")
    for path in (files("attention_lab") / "results").iterdir()
]


@pytest.mark.parametrize("name", NAMES)
def test_readings_name_machine_and_python(name):
    machine = read_benchmark(name)["machine"]
    assert machine["python"].startswith("3.")
    assert machine["processor"]


def test_unknown_readings_are_refused():
    with pytest.raises(ValueError, match=r"no readings of 'speed'; .*recorder"):
        read_benchmark("speed")
