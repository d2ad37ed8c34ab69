"""A folder with environments of stand-in releases, where whole searches run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import FakeCache, lab_of
from tests.fix.packages import environment_folder
from whichtorch.environments.configs import BUILTIN
from whichtorch.environments.expansion import existing
from whichtorch.fix.cure_runs import CureRuns
from whichtorch.fix.fixing import CureRequest, Fix, fix
from whichtorch.matrix.lab import Runner
from whichtorch.matrix.planning import PlannedCell, RunOptions
from whichtorch.model import Environment
from whichtorch.process.executor import LocalExecutor
from whichtorch.records.store import new_run
from whichtorch.suite import selection

CORE = "class _Core:\n    def known(self): pass\n_C = _Core()\n"
SCRIPT = "import torch\nassert torch.add(1, 2) == 3, 'wrong sum'\n"


@dataclass(frozen=True)
class Workplace:
    folder: Path
    said: list[str]
    executor: LocalExecutor = field(default_factory=LocalExecutor)
    timeout: int = 20  # seconds
    jobs: int = 1

    def environment(self, name: str, files: Mapping[str, str]) -> Environment:
        interpreter = environment_folder(self.folder / "envs" / name, files)
        return Environment(
            id=name, label=name, torch=name, python="3.11", build="existing", config="default", interpreter=interpreter
        )

    def fix(self, bad: Environment, good: Environment, script: str = SCRIPT, most: int | None = None) -> Fix:
        path = self.folder / "repro.py"
        path.write_text(script)
        assert bad.interpreter is not None
        planned = PlannedCell(
            request=existing(bad.interpreter, BUILTIN["default"]),
            scenario=selection.script(str(path)),
            variant={},
            options=RunOptions(timeout=self.timeout),
        )
        request = CureRequest(bad=bad, good=good, max_trials=most, jobs=self.jobs, tell=self.said.append)
        with new_run(self.folder, ()) as store:
            lab = lab_of(FakeCache(self.folder), store, self.executor)
            return fix(request, CureRuns(Runner(lab=lab, planned=planned, environment=bad, tell=self.said.append)))
