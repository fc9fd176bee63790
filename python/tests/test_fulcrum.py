"""The package as its users call it."""

import doctest
import importlib
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import fulcrum

SMALL = {
    "machine": "rtx4090-desktop",
    "model": "opt-125m",
    "workload": {"batch": 1, "prompt_tokens": 64, "output_tokens": 8},
}


@pytest.mark.parametrize(
    "module", ["fulcrum", *(f"fulcrum.{name}" for name in ("machines", "plans", "questions", "scenarios", "sweeps", "tables"))]
)
def test_docstrings_are_right(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert failed == 0 and (tried > 0)


def test_a_plan_is_what_its_document_says_and_survives_a_file(tmp_path: Path) -> None:
    plan = fulcrum.plan(SMALL)
    document = plan.to_dict()
    assert document["machine"]["name"] == plan.machine == "rtx4090-desktop"
    assert plan.tpot_s is not None and plan.decode_tokens_per_s == pytest.approx(1 / plan.tpot_s)
    assert plan.bound.ttft_s <= plan.ttft_s
    held = sum(use.weights for use in plan.memory.values())
    # Norms and positions are kept in f32.
    assert held == pytest.approx(2 * fulcrum.Model.named("opt-125m").parameters, rel=0.02)
    plan.save(tmp_path / "plan.yaml")
    again = fulcrum.read_plan(tmp_path / "plan.yaml")
    assert again.to_yaml() == plan.to_yaml()
    assert again.simulate().ttft_s == pytest.approx(plan.simulate().ttft_s)
    assert "opt-125m" in str(again.explain()) and again.explain().to_dict()["memories"]


def test_the_same_question_in_every_form_has_the_same_answer(tmp_path: Path) -> None:
    text = "machine: rtx4090-desktop\nmodel: opt-125m\nworkload: {batch: 1, prompt_tokens: 64, output_tokens: 8}\n"
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    answers = {
        fulcrum.plan(form).to_yaml()
        for form in (SMALL, text, path, str(path), fulcrum.Scenario.from_file(path), json.dumps(SMALL))
    }
    assert len(answers) == 1


def test_wrong_input_is_an_exception_with_place_key_and_value() -> None:
    wrong = {**SMALL, "workload": {"batch": -1, "prompt_tokens": 64, "output_tokens": 8}}
    with pytest.raises(fulcrum.InputError) as caught:
        fulcrum.plan(wrong)
    assert caught.value.key == "workload.batch" and caught.value.value == "-1" and caught.value.wanted
    with pytest.raises(fulcrum.InputError) as caught:
        fulcrum.plan({**SMALL, "modle": "opt-125m"})
    assert caught.value.key == "modle"
    with pytest.raises(fulcrum.InputError, match="llama"):
        fulcrum.Model.named("lama-3.1-8b")
    with pytest.raises(fulcrum.InputError, match="no-such-file"):
        fulcrum.plan(Path("no-such-file.yaml"))
    with pytest.raises(fulcrum.InfeasibleError):
        fulcrum.plan({**SMALL, "model": "deepseek-v3"})
    with pytest.raises(TypeError, match="int"):
        fulcrum.plan(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="object"):
        fulcrum.plan({**SMALL, "machine": object()})
    with pytest.raises(ValueError):
        fulcrum.plan({**SMALL, "workload": {"batch": float("nan")}})
    assert issubclass(fulcrum.InputError, fulcrum.FulcrumError)


def test_requests_that_come_and_go_are_conserved() -> None:
    scenario = {
        "machine": "h100-sxm",
        "model": "llama-3.2-1b",
        "engine": "vllm",
        "workload": {"concurrency": 4, "requests": 20, "prompt_tokens": 64, "output_tokens": 8},
    }
    run = fulcrum.simulate(scenario)
    assert run.kind == "served" and run.to_dict()["requests"]["completed"] == 20
    assert 0 < run.tpot_s and 0 < run.ttft_s and "<table>" in run._repr_html_()


def test_a_capacity_says_how_many_machines() -> None:
    capacity = fulcrum.capacity(
        {
            "model": "llama-3.2-1b",
            "engine": "vllm",
            "slo": {"ttft": "100 ms", "tpot": "20 ms"},
            "workload": {"arrivals": {"poisson": "20 req/s"}, "requests": 100, "prompt_tokens": 64, "output_tokens": 4},
            "capacity": {"load": "2000 req/s", "years": 2, "machines": ["l4"]},
        }
    )
    assert capacity.answer and capacity.table()["machine"] == ["l4"]
    assert capacity.table()["machines"][0] >= 1


def test_operators_are_predicted(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("dtype,m,n,k\nbf16,1,4096,4096\nbf16,64,4096,4096\n")
    predicted = fulcrum.predict(path, "h100-sxm")
    times = predicted.table["predicted_us"]
    assert len(times) == 2 and all(isinstance(time, float) and time > 0 for time in times)
    assert predicted.table["m"] == [1, 64]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_have_the_bytes_of_one_machine(shards: int) -> None:
    values = {"workload.batch": [1, 2, 4], "machine,dtype.weights": [["l4", "bf16"], ["rtx4090-desktop", "int8"]]}
    whole = fulcrum.sweep(SMALL, values)
    with ProcessPoolExecutor(2) as executor:
        parts = fulcrum.sweep(SMALL, values, executor=executor, shards=shards)
    assert parts.csv == whole.csv and len(whole) == 6
    assert parts.counts["ok"] == whole.counts["ok"] == 6
    least = whole.best("tpot_s_mean")
    assert least["tpot_s_mean"] == min(whole["tpot_s_mean"])
    assert whole.best("tpot_s_mean", most=True)["tpot_s_mean"] >= least["tpot_s_mean"]
    with pytest.raises(fulcrum.InputError, match="no_such"):
        whole.best("no_such")


def test_a_sweep_with_search_has_the_times_of_plans() -> None:
    question = {"machine": "rtx4090-desktop", "model": "qwen3-30b-a3b",
                "workload": {"batch": 1, "prompt_tokens": 64, "output_tokens": 8}}
    quick, searched = (fulcrum.sweep(question, {"workload.batch": [1]}, search=search) for search in (False, True))
    assert searched["e2el_s_mean"][0] <= quick["e2el_s_mean"][0] * 1.0001
    assert searched["ttft_s_mean"][0] == pytest.approx(fulcrum.plan(question).ttft_s, rel=1e-6)


def test_tables_become_arrow_pandas_and_polars() -> None:
    table = fulcrum.sweep(SMALL, {"workload.batch": [1, 2]})
    pandas, polars, arrow = table.to_pandas(), table.to_polars(), table.to_arrow()
    assert list(pandas["workload.batch"]) == polars["workload.batch"].to_list() == [1, 2]
    assert arrow.column("workload.batch").to_pylist() == [1, 2]


def test_notebooks_get_tables_and_plots() -> None:
    plan = fulcrum.plan(SMALL)
    assert "<svg" in plan._repr_html_() and "opt-125m" in plan._repr_html_()
    assert "<table>" in fulcrum.sweep(SMALL, {"workload.batch": [1, 2]})._repr_html_()


def test_the_interpreter_runs_while_a_sweep_does() -> None:
    ticks = 0
    done = threading.Event()

    def work() -> None:
        fulcrum.sweep(SMALL, {"workload.batch": list(range(1, 33)), "workload.prompt_tokens": [64, 128, 256]})
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set() and ticks < 10_000:
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 5


def test_types_are_right() -> None:
    root = Path(__file__).parents[1]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"],
        capture_output=True,
        text=True,
        cwd=root,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
