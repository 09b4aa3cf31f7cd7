import pytest

from attention_lab.steps.pretend_gpu import PretendGPU

TIMES = {"kernel_us": 700, "launch_us": 3, "compile_us": 5000}


def test_only_the_first_launch_compiles():
    gpu = PretendGPU(**TIMES)
    gpu.launch()
    assert gpu.clock() == 5003
    gpu.launch()
    assert gpu.clock() == 5006


def test_the_queue_is_worked_off_in_order():
    gpu = PretendGPU(**TIMES)
    for _ in range(3):
        gpu.launch()
    gpu.synchronize()
    # The first kernel starts when its launch is over; the others wait.
    assert gpu.clock() == 5003 + 3 * 700
    gpu.synchronize()
    assert gpu.clock() == 5003 + 3 * 700


def test_an_idle_gpu_starts_at_the_launch():
    gpu = PretendGPU(**TIMES)
    gpu.launch()
    gpu.synchronize()
    start = gpu.clock()
    gpu.launch()
    gpu.synchronize()
    assert gpu.clock() - start == 3 + 700
    assert gpu.called.count("launch") == 2


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("time", [0, -5, 1.5, float("nan"), True, None])
def test_a_time_is_a_whole_number(name, time):
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        PretendGPU(**{**TIMES, name: time})
