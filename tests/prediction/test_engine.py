"""The compiled loops of replay in their file: who compiles, who loads, and what is never loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.prediction import engine
from tests.cli.conftest import BERT, GPU
from tests.waiting import PATIENCE_S

PREDICT = [sys.executable, "-m", "advisor", "predict", BERT, BERT, "--gpu", GPU, "--json"]


def predictions(folder, at_once):
    """Start so many commands at once; return each one's answer, and how many lines it noted."""
    started = [
        subprocess.Popen(
            PREDICT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(folder)},
        )
        for _ in range(at_once)
    ]
    outputs = [command.communicate(timeout=PATIENCE_S) for command in started]
    assert [command.returncode for command in started] == [0] * at_once, outputs
    return [(json.loads(answer), len(notes.splitlines())) for answer, notes in outputs]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder of code that a first command compiled, and what that command answered."""
    folder = tmp_path_factory.mktemp("compiled")
    return folder, predictions(folder, 1)


@pytest.mark.exhaustive
def test_the_first_command_compiles_and_says_so_in_one_line_and_later_ones_load(compiled):
    folder, [(answer, lines)] = compiled
    assert lines == 1
    assert predictions(folder, 1) == [(answer, 0)]


@pytest.mark.exhaustive
def test_commands_that_start_at_once_may_all_compile_and_leave_one_file(compiled, tmp_path):
    _, [(answer, _)] = compiled
    assert predictions(tmp_path, 2) == [(answer, 1)] * 2
    assert kept(tmp_path).is_file()


@pytest.fixture(scope="module")
def code():
    """An object file with a function of the engine's name that does nothing."""
    engine.llvm.initialize_native_target()
    engine.llvm.initialize_native_asmprinter()
    machine = engine.llvm.Target.from_default_triple().create_target_machine(jit=True)
    return machine.emit_object(engine.llvm.parse_assembly("define i32 @replay() { ret i32 0 }"))


@pytest.fixture
def compilations(code, tmp_path, monkeypatch):
    """A function that loads as a new process does; it returns how many have compiled so far."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []
    monkeypatch.setattr(engine, "_machine_code", lambda: calls.append(1) or code)

    def load():
        engine.load.cache_clear()
        assert callable(engine.load()[0])
        return len(calls)

    yield load
    engine.load.cache_clear()


def kept(folder):
    (path,) = (folder / "advisor/engine").iterdir()
    return path


@pytest.mark.parametrize("end", [-1, 40, 0])
@pytest.mark.exhaustive
def test_a_file_that_is_cut_off_is_written_again(end, compilations, tmp_path):
    assert (compilations(), compilations()) == (1, 1)
    path = kept(tmp_path)
    path.write_bytes(path.read_bytes()[:end])
    assert (compilations(), compilations()) == (2, 2)


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_code_that_others_could_write_is_not_loaded(mode, compilations, tmp_path):
    compilations()
    kept(tmp_path).chmod(mode)
    assert (compilations(), compilations()) == (2, 2)
    assert kept(tmp_path).stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_code_of_another_user_is_not_loaded(compilations, tmp_path):
    compilations()
    os.chown(kept(tmp_path), 12345, -1)
    assert (compilations(), compilations()) == (2, 2)


def test_each_kind_of_processor_has_its_own_file(compilations, tmp_path, monkeypatch):
    compilations()
    monkeypatch.setattr(engine.llvm, "get_host_cpu_name", lambda: "another")
    assert (compilations(), compilations()) == (2, 2)
    assert len(list((tmp_path / "advisor/engine").iterdir())) == 2


def no_home():
    raise RuntimeError


@pytest.mark.parametrize("folder", ["/proc/nowhere", ""], ids=["cannot be written", "no home"])
def test_without_a_folder_each_process_compiles(folder, compilations, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.setattr(Path, "home", no_home)
    assert (compilations(), compilations()) == (1, 2)
    assert "XDG_CACHE_HOME" in caplog.text
