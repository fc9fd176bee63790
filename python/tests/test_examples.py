"""The example notebooks run, and the job files are what their schedulers accept."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("notebook", sorted(path.name for path in (ROOT / "examples").glob("*.ipynb")))
def test_notebooks_run(notebook: str) -> None:
    import nbformat
    from nbclient import NotebookClient

    document = nbformat.read(ROOT / "examples" / notebook, as_version=4)
    nbformat.validate(document)
    NotebookClient(document, timeout=300, kernel_name="python3").execute()
    printed = [cell for cell in document.cells if cell.cell_type == "code" and cell.outputs]
    assert printed


def test_the_job_of_kubernetes_keeps_its_schema() -> None:
    yaml = pytest.importorskip("yaml")
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    documents = list(yaml.safe_load_all((ROOT / "examples" / "jobs" / "kubernetes.yaml").read_text()))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    job = documents[0]["spec"]
    assert job["completionMode"] == "Indexed" and job["completions"] == job["parallelism"]


def test_the_jobs_ask_for_shards_that_the_command_knows() -> None:
    slurm = ROOT / "examples" / "jobs" / "slurm.sh"
    assert subprocess.run(["bash", "-n", str(slurm)], check=False).returncode == 0
    for file in (slurm, ROOT / "examples" / "jobs" / "kubernetes.yaml"):
        assert "--shard" in file.read_text()
