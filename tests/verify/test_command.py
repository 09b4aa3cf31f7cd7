import io
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from numpy.testing import assert_array_less

from attention_lab.verify.attention import battery as attention_battery
from attention_lab.verify.command_line import (
    command,
    failure_counts,
    fresh_process,
    worker,
)
from attention_lab.verify.command_line.command import main
from attention_lab.verify.command_line.load import CannotVerify
from attention_lab.verify.command_line.worker import Request
from attention_lab.verify.known_mistakes import KnownMistake
from attention_lab.verify.module import battery as module_battery
from attention_lab.verify.report import Check, Report, report_from_json

PATIENT = ("--seconds", "120")  # on a busy machine; it takes about two
ROOT = Path(__file__).parents[2]
RIGHT = """
import numpy as np

def attend(query, key, value):
    wide = np.promote_types(query.dtype, np.float32)
    scores = query.astype(wide) @ key.astype(wide).swapaxes(-1, -2)
    scores = scores / query.shape[-1] ** 0.5
    peak = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - peak)
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ value.astype(wide)).astype(query.dtype)
"""
UNSCALED = RIGHT.replace(" / query.shape[-1] ** 0.5", "")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def no_torch(tmp_path, monkeypatch):
    """Hide PyTorch from workers: most of these tests are not about it."""
    folder = tmp_path / "no_torch"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ImportError('hidden')")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


def file_with(folder, text):
    path = folder / "mine.py"
    path.write_text(text)
    return path


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-P", "-m", "attention_lab.verify", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=180,
    )


# From the file to the exit code --------------------------------------------


@pytest.mark.usefixtures("no_torch")
def test_a_right_function_passes_with_code_0(tmp_path):
    # Neither what the file prints nor the modules of the current folder
    # disturb the report.
    file_with(
        tmp_path, f"import sys\nprint('hello', sys.argv)\nprint('{{')\n{RIGHT}"
    )
    (tmp_path / "argparse.py").write_text("raise SystemExit(9)")
    done = run("verify", "mine.py:attend", "--json", *PATIENT, cwd=tmp_path)
    report = report_from_json(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert report.passed
    assert report.subject == "mine.py:attend"
    assert len(report.checks) > 5


@pytest.mark.usefixtures("no_torch")
def test_a_wrong_function_fails_with_code_1(tmp_path, capsys):
    path = file_with(tmp_path, UNSCALED)
    assert main(["verify", f"{path}:attend", *PATIENT]) == 1
    out, err = capsys.readouterr()
    assert "mine.py:attend: " in out
    assert "✗ values" in out
    assert err == ""


def cannot(tmp_path, text, **limits):
    path = file_with(tmp_path, text)
    request = Request(
        path=str(path),
        name="attend",
        answers="",
        **{"seconds": 20.0, "memory_bytes": 1 << 30, **limits},
    )
    with pytest.raises(CannotVerify) as error:
        fresh_process.verify_in_fresh_process(request)
    return str(error.value)


@pytest.mark.usefixtures("no_torch")
def test_an_import_that_hangs_is_stopped_with_all_that_it_started(tmp_path):
    note = tmp_path / "pid"
    began = time.monotonic()
    said = cannot(
        tmp_path,
        "import pathlib, subprocess, time\n"
        "p = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(p.pid))\n"
        "time.sleep(60)",
        seconds=0.5,
    )
    assert "mine.py was still being imported at the time limit of 0.5 s" in said
    assert_array_less(time.monotonic() - began, 15)
    until = time.monotonic() + 3
    while True:
        try:
            state = Path(f"/proc/{note.read_text()}/stat").read_text()
        except OSError:
            break
        if ") Z" in state:  # dead, and nobody's child any more
            break
        assert time.monotonic() < until, state
        time.sleep(0.05)


@pytest.mark.usefixtures("no_torch")
def test_an_import_that_crashes_is_reported(tmp_path):
    said = cannot(
        tmp_path,
        "import ctypes\nprint('so far', flush=True)\nctypes.string_at(0)",
    )
    assert said == (
        "mine.py broke off while it was imported. It crashed with signal "
        'SIGSEGV. It last printed: "so far".'
    )


@pytest.mark.usefixtures("no_torch")
@pytest.mark.skipif(
    sys.platform != "linux", reason="memory is limited on Linux only"
)
def test_an_import_that_needs_too_much_memory_is_reported(tmp_path):
    said = cannot(tmp_path, "x = bytearray(1 << 30)", memory_bytes=1 << 28)
    assert said == (
        "mine.py could not be imported. It needed more memory than the limit "
        "of 256 MiB"
    )


def test_a_class_without_its_option_is_explained(tmp_path):
    path = file_with(tmp_path, "class attend: pass")
    request = Request(str(path), "attend", "", 1.0, 1)
    with pytest.raises(CannotVerify, match="a class: add --module --embed-dim"):
        worker._load(request)


def test_a_module_without_its_option_is_explained(tmp_path):
    pytest.importorskip("torch")
    path = file_with(
        tmp_path, "from torch import nn\nattend = nn.Linear(2, 2)\n"
    )
    request = Request(
        path=str(path), name="attend", answers="", seconds=1, memory_bytes=1
    )
    with pytest.raises(CannotVerify, match=r"nn\.Module: add --module --embed"):
        worker._load(request)


def test_a_reader_that_stops_reading_is_no_error(tmp_path):
    command = [sys.executable, "-m", "attention_lab.verify"]
    with subprocess.Popen(
        [*command, "verify", f"{tmp_path}/none.py:attend", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 2
    assert b"Traceback" not in said


def test_what_cannot_be_run_has_code_2_and_one_sentence(tmp_path, capsys):
    assert main(["verify", f"{tmp_path}/none.py:attend"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"Could not be run: there is no file {tmp_path}/none.py.\n"
    assert main(["verify", f"{tmp_path}/none.py:attend", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "verify.v1"
    assert answer["passed"] is False
    assert "there is no file" in answer["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required"),
        (["verify"], "FILE.py:NAME"),
        (["verify", "a.py:b", "--module"], "--module needs --embed-dim N"),
        (["verify", "a.py:b", "--embed-dim", "8"], "go with --module"),
        (["verify", "a.py:b", "--seconds", "0"], "invalid positive float"),
        (["verify", "a.py:b", "--seconds", "nan"], "invalid positive float"),
        (["verify", "a.py:b", "--memory-mb", "x"], "invalid positive int"),
        (
            [
                *("verify", "a.py:b", "--module"),
                *("--embed-dim", "8", "--num-heads", "3"),
            ],
            "--embed-dim 8 is no multiple of --num-heads 3",
        ),
    ],
)
def test_wrong_arguments_have_code_2(arguments, said, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert main([*arguments, "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "verify.v1"
    assert answer["passed"] is False
    assert answer["error"]
    if arguments:  # else the command does not know --json at all
        assert said in answer["error"]


def test_help_explains_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0 passed; 1 a check failed; 2 could not be run, or not" in said


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while True: pass", "time limit of 2 s"),
        ("import os; os.abort()", "crashed with signal SIGABRT"),
        ("import os; os._exit(0)", "ended its process with exit code 0"),
    ],
)
def test_what_does_not_come_to_its_end_has_code_2(tmp_path, capsys, body, said):
    path = file_with(tmp_path, f"def attend(query, key, value):\n    {body}\n")
    target = f"{path}:attend"
    assert main(["verify", target, "--seconds", "2", "--json"]) == 2
    report = report_from_json(capsys.readouterr().out)
    assert not report.passed
    assert said in report.checks[-1].what


def test_the_command_is_installed_under_its_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["scripts"]["attention-lab"]
    assert entry == f"{main.__module__}:{main.__name__}"


# What it hands on ----------------------------------------------------------


@pytest.fixture
def fake(monkeypatch):
    """Replace the worker: it gives the report that a test puts in."""

    class Worker:
        report = Report("attend", "numpy", (Check("values", True),))
        request = None

        def __call__(self, request):
            self.request = request
            return self.report

    fake = Worker()
    monkeypatch.setattr(command, "verify_in_fresh_process", fake)
    return fake


@pytest.fixture
def target(tmp_path):
    return f"{file_with(tmp_path, '')}:attend"


def test_the_options_reach_the_worker(fake, target):
    assert main(["verify", target]) == 0
    assert fake.request.seconds == 20.0
    assert fake.request.memory_bytes == 4 << 30
    assert not fake.request.is_module
    limits = ["--seconds", "3.5", "--memory-mb", "512"]
    module = ["--module", "--embed-dim", "8", "--num-heads", "2"]
    assert main(["verify", target, *module]) == 0
    assert fake.request.seconds == 30.0
    assert main(["verify", target, *module, *limits]) == 0
    path, _, name = target.rpartition(":")
    assert fake.request == Request(
        path=path,
        name=name,
        answers="",
        seconds=3.5,
        memory_bytes=512 << 20,
        is_module=True,
        embed_dim=8,
        num_heads=2,
    )


def test_ctrl_c_is_no_result(monkeypatch, target, capsys):
    def interrupted(request):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "verify_in_fresh_process", interrupted)
    assert main(["verify", target]) == 2
    assert capsys.readouterr() == ("", "Stopped.\n")
    assert main(["verify", target, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "It was stopped."


def answers_of(path, monkeypatch, **options):
    """Run the worker in this process; return what it answers."""
    answers = path.with_name("answers")
    request = Request(
        **{
            "path": str(path),
            "name": "attend",
            "answers": str(answers),
            "seconds": 7.0,
            "memory_bytes": 1,
            **options,
        }
    )
    # Both would stay with the process that runs all tests.
    monkeypatch.setattr(worker, "limit_memory", lambda memory_bytes: None)
    monkeypatch.setattr(worker, "adopt_orphans", lambda: None)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])
    worker.main(request.to_json())
    assert sys.argv == [str(path)]
    return [json.loads(line) for line in answers.read_text().splitlines()]


def test_the_worker_answers_step_by_step(tmp_path, monkeypatch):
    def verify(fn, *, supports, seconds):
        assert (fn(), supports, seconds) == (3, None, 7.0)
        return GOOD

    monkeypatch.setattr(attention_battery, "verify_attention", verify)
    path = file_with(tmp_path, "def attend(): return 3")
    assert answers_of(path, monkeypatch) == [
        {"imports": True},
        {"loaded": True},
        {"report": GOOD.to_json()},
    ]


def test_the_worker_builds_a_module(tmp_path, monkeypatch):
    pytest.importorskip("torch")

    def verify(module, embed_dim, num_heads, *, seconds):
        assert (module.embed_dim, module.num_heads) == (12, 3)
        assert (embed_dim, num_heads, seconds) == (12, 3, 7.0)
        return GOOD

    monkeypatch.setattr(module_battery, "verify_module", verify)
    path = file_with(tmp_path, "from torch.nn import MultiheadAttention as A")
    options = {"is_module": True, "embed_dim": 12, "num_heads": 3}
    *_, last = answers_of(path, monkeypatch, name="A", **options)
    assert last == {"report": GOOD.to_json()}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("raise MemoryError", "more memory than the limit of"),
        ("raise KeyboardInterrupt", "It raised KeyboardInterrupt"),
        ("", "mine.py has no attend"),
    ],
)
def test_the_worker_says_why_it_cannot(tmp_path, monkeypatch, text, answer):
    path = file_with(tmp_path, text)
    *_, last = answers_of(path, monkeypatch)
    assert answer in last["cannot"]


def test_it_is_said_what_takes_so_long():
    request = Request("/x/mine.py", "attend", "", 3.0, 1)

    def said(*answers):
        return fresh_process._what_takes_so_long(request, answers)

    assert said().startswith("Python did not start")
    assert said("imports").startswith("mine.py was still being imported at")
    assert said("imports", "loaded") == (
        "the checks of attend did not stop at the time limit of 3 s"
    )


def test_a_report_without_checks_could_not_be_run(fake, target):
    fake.report = Report("attend", "numpy", ())
    assert main(["verify", target]) == 2


def test_a_terminal_without_the_signs_gets_others(fake, target, monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["verify", target]) == 0
    terminal.flush()
    assert b"all 1 checks passed" in terminal.buffer.getvalue()


# Hints that grow -----------------------------------------------------------


@pytest.fixture
def card(monkeypatch):
    card = KnownMistake(
        id="no-scale",
        room="softmax",
        kind="attention",
        title="The scale is missing",
        symptom="Weights are too sharp.",
        cause="the scores are not scaled.",
        hint="small",
        bigger_hint="big",
        source="owner/repo#1",
        check="values",
        page="scaled_dot_product",
    )
    cards = {card.id: card}
    monkeypatch.setattr(command, "known_mistakes", lambda: cards)
    monkeypatch.setattr(
        "attention_lab.verify.hints.known_mistakes", lambda: cards
    )
    return card


BAD = Report(
    "attend", "numpy", (Check("values", False, "off", mistake="no-scale"),)
)
GOOD = Report("attend", "numpy", (Check("values", True),))


@pytest.mark.usefixtures("card")
def test_the_second_failure_gets_the_bigger_hint(fake, target, capsys):
    def hint_of(report, *options):
        fake.report = report
        code = main(["verify", target, "--json", *options])
        assert code == (0 if report.passed else 1)
        return report_from_json(capsys.readouterr().out)["values"].hint

    assert hint_of(BAD) == "small"
    assert hint_of(BAD) == "big"
    assert hint_of(BAD) == "big"
    assert hint_of(BAD, "--fresh-hints") == "small"
    assert hint_of(BAD) == "big"
    assert hint_of(GOOD) == ""
    assert hint_of(BAD) == "small"
    other = f"{target}_other"
    fake.report = BAD
    main(["verify", other, "--json"])
    assert report_from_json(capsys.readouterr().out)["values"].hint == "small"


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"X": 3}', '{"X": {"values": "many"}}', "\x00"]
)
def test_a_broken_memory_starts_anew(fake, target, content, capsys):
    file = failure_counts.counts_file()
    file.parent.mkdir(parents=True)
    file.write_text(content.replace("X", target))
    fake.report = BAD
    assert main(["verify", target]) == 1
    assert json.loads(file.read_text())[target] == {"values": 1}
    assert "Hint: small" in capsys.readouterr().out


@pytest.mark.usefixtures("card")
def test_without_a_place_to_remember_it_goes_on(
    fake, target, tmp_path, monkeypatch, capsys
):
    # A file where the folder should be.
    monkeypatch.setenv("XDG_CACHE_HOME", str(file_with(tmp_path, "")))
    fake.report = BAD
    for _ in range(2):
        assert main(["verify", target]) == 1
        out, err = capsys.readouterr()
        assert "Hint: small" in out
        assert err == ""


def test_a_passed_subject_leaves_nothing_behind(fake, target):
    fake.report = BAD
    failure_counts.remember("it", BAD)
    assert failure_counts.failures_before("it") == {"values": 1}
    failure_counts.remember("it", GOOD)
    assert json.loads(failure_counts.counts_file().read_text()) == {}


@pytest.mark.parametrize(
    ("platform", "folder"),
    [
        ("linux", ".cache"),
        ("darwin", "Library/Caches"),
        ("win32", "AppData/Local"),
    ],
)
def test_the_memory_is_where_the_system_keeps_such_files(
    monkeypatch, tmp_path, platform, folder
):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "AppData" / "Local"))
    monkeypatch.setattr(sys, "platform", platform)
    expected = tmp_path / folder / "attention-lab" / "failures.json"
    assert failure_counts.counts_file() == expected


# The catalogue -------------------------------------------------------------


def test_the_mistakes_are_listed_and_shown(card, capsys):
    assert main(["mistakes"]) == 0
    assert capsys.readouterr().out == "no-scale  The scale is missing\n"
    assert main(["mistakes", "no-scale"]) == 0
    out = capsys.readouterr().out
    for text in (card.title, card.symptom, card.cause, card.source, card.link):
        assert text in out
    assert card.bigger_hint not in out
    assert main(["mistakes", "none"]) == 2
    assert "no mistake 'none'" in capsys.readouterr().err
