"""A real notebook kernel: what the page on notebooks promises."""

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")

pytestmark = pytest.mark.notebook

POLICY = """
from dataclasses import dataclass
from fedbandit_baselines.yardsticks import Uniform

@dataclass(frozen=True)
class Mine(Uniform):
    "A policy that is typed into a cell."

fb.register_policy("Mine", Mine)
"""
EXPERIMENT = """
problem = {"num_agents": 4, "max_cycles": 64}
experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Mine", "Local-UCB"], problem, trials=2)
result = fb.run(experiment, out="kept", executor="processes:2")
result
"""


BAR = """
import time
from fedbandit_envs.experiments.progress import progress_bar
with progress_bar(3) as bar:
    time.sleep(1.2)
    bar.update()
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The outputs of each cell of a notebook that was run by a kernel of its own."""
    sources = ["import fedbandit_envs as fb", POLICY, EXPERIMENT, "fb.plotting.regret(result)"]
    sources += [POLICY.replace("class Mine(Uniform):", "class Mine(Uniform):\n    changed: int = 1"), EXPERIMENT]
    sources.append(BAR)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell["outputs"] for cell in notebook.cells]


def shown(outputs, kind):
    return [output["data"][kind] for output in outputs if kind in output.get("data", {})]


def test_a_policy_that_is_typed_into_a_cell_runs_in_worker_processes(cells):
    (table,) = shown(cells[2], "text/html")
    assert "<td>Mine</td>" in table
    assert "2 of 2 trials" in table


def test_a_figure_as_the_last_line_of_a_cell_shows_itself(cells):
    (picture,) = shown(cells[3], "image/png")
    assert len(picture) > 1000


def test_a_cell_that_is_run_again_after_a_change_computes_its_results_again(cells):
    (table,) = shown(cells[5], "text/html")
    assert "Mine: 0 trials reused, 2 computed" in table
    assert "Local-UCB: 2 trials reused, 0 computed" in table


def test_a_long_run_shows_a_progress_bar(cells):
    written = "".join(output["text"] for output in cells[6] if output["output_type"] == "stream")
    assert "1/3" in written
