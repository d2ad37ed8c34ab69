"""As much of GitHub Actions as the workflows and the action use: it runs the very commands that these hold."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.patience import PATIENCE

ROOT = Path(__file__).parent.parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yml"
ACTION = ROOT / "action.yml"
INSTALLED = {"Install nox", "Install whichtorch"}  # steps whose work is done: there is no network
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # what `shell: bash` means there

Contexts = Mapping[str, Any]


def workflow(file: Path = WORKFLOW) -> dict[str, Any]:
    """Return a workflow, the nightly one or another; `on`, which YAML takes for a truth, by its name."""
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {"on" if name is True else name: value for name, value in found.items()}


def remarks(shell: str, script: str) -> str:
    """Return what shellcheck says of a script."""
    command = [str(Path(sys.executable).with_name("shellcheck")), "--shell", shell, "-"]
    return subprocess.run(command, input=script, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout


class _Fields(dict[str, Any]):
    """An object of JSON, whose fields an expression names after a dot."""

    __getattr__ = dict.__getitem__


@dataclass
class Job:
    """How a job ended, and what it left."""

    result: str = "success"
    log: str = ""
    summary: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)  # names of those that ran


@dataclass
class Service:
    """A repository with its workflow, its artifacts, and its clock that nobody waits for."""

    state: Path  # what `gh` knows
    environ: dict[str, str]
    checkout: Callable[[], Path]  # what actions/checkout gives a job
    file: Path = WORKFLOW

    def run(self, id_: str, *, ref: str = "main") -> dict[str, list[Job]]:
        """Run the whole workflow; return how its jobs ended, by their ids."""
        jobs: dict[str, list[Job]] = {}
        for name in workflow(self.file)["jobs"]:
            jobs[name] = self.jobs(name, id_, jobs, ref=ref)
        self.complete(id_)
        return jobs

    def complete(self, id_: str) -> None:
        """Let a run be over."""
        file = self.state / "completed"
        file.write_text(f"{id_}\n" + (file.read_text() if file.exists() else ""))

    def jobs(self, name: str, id_: str, before: Mapping[str, list[Job]], *, ref: str = "main") -> list[Job]:
        """Run a job of the workflow, once for each row of its matrix; not at all where what it needs has failed."""
        job = workflow(self.file)["jobs"][name]
        needs = {need: _as_need(before[need]) for need in _listed(job.get("needs", []))}
        contexts = {"github": _github(id_, ref), "needs": needs, "steps": {}, "runner": {"os": "Linux"}}
        failed = any(need["result"] != "success" for need in needs.values())
        if not evaluate(str(job.get("if", "success()")), contexts, failed=failed):
            return [Job(result="skipped")]
        rows: list[dict[str, str]] = [{}]
        if "strategy" in job:
            axes = expanded(job["strategy"]["matrix"], contexts)
            rows = axes.get("include") or [{name: value} for name, values in axes.items() for value in values]
        checkouts = [self.checkout() for _ in rows]
        of_rows = [
            contexts | {"matrix": row, "strategy": {"job-index": index}, "steps": {}} for index, row in enumerate(rows)
        ]
        with ThreadPoolExecutor() as pool:
            return list(pool.map(partial(self._run, job, id_), checkouts, of_rows))

    def _run(self, job: Mapping[str, Any], id_: str, folder: Path, contexts: Contexts) -> Job:
        """Run the steps of one job in a fresh checkout."""
        done = Job()
        env = expanded(workflow(self.file).get("env", {}), contexts) | expanded(job.get("env", {}), contexts)
        contexts = {**contexts, "env": env}
        self._steps(job["steps"], id_, folder, contexts, done)
        done.summary = _read(folder.parent / "summary")
        done.outputs = expanded(job.get("outputs", {}), contexts)
        return done

    def _steps(
        self, steps: list[dict[str, Any]], id_: str, folder: Path, contexts: Mapping[str, Any], done: Job
    ) -> None:
        """Run steps, those of a job or of an action in it, and note in the job what came of them."""
        for step in steps:
            failed = done.result != "success"
            if step.get("name") in INSTALLED or not evaluate(step.get("if", "success()"), contexts, failed=failed):
                continue
            done.steps.append(str(step.get("name") or step["uses"]))
            given = expanded(step.get("with", {}), contexts)
            if "/whichtorch@" in step.get("uses", ""):
                self._act(given, id_, folder, contexts, done)
            elif "uses" in step:
                self._use(step["uses"], given, folder, id_)
            else:
                env = contexts["env"] | expanded(step.get("env", {}), contexts)
                if self._shell(step["run"], folder, env, done) != 0:
                    done.result = "failure"
                contexts["steps"][step.get("id", "")] = {"outputs": _outputs(folder.parent / "output")}

    def _act(self, given: Mapping[str, Any], id_: str, folder: Path, contexts: Contexts, done: Job) -> None:
        """Run the steps of the project's own action, which sees its inputs as texts, and no other step."""
        action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
        assert given.keys() <= action["inputs"].keys(), "the service would warn, and go on"
        inputs = {name: row["default"] for name, row in action["inputs"].items()}
        inputs |= {name: str(value).lower() if value in (True, False) else str(value) for name, value in given.items()}
        assert all("shell" in step for step in action["runs"]["steps"] if "run" in step), "it would not start"
        own = {"inputs": inputs, "env": contexts["env"], "github": contexts["github"], "steps": {}}
        self._steps(action["runs"]["steps"], id_, folder, own, done)

    def _shell(self, script: str, folder: Path, env: Mapping[str, Any], done: Job) -> int:
        """Run the commands of a step as the service does; return their exit code."""
        files = {"GITHUB_OUTPUT": folder.parent / "output", "GITHUB_STEP_SUMMARY": folder.parent / "summary"}
        files["GITHUB_OUTPUT"].unlink(missing_ok=True)
        files |= {"RUNNER_TEMP": folder.parent / "temp", "GITHUB_WORKSPACE": folder, "GITHUB_ACTION_PATH": ROOT}
        more = {name: str(value) for name, value in {**files, **env, "GH_STATE": self.state}.items()}
        ended = shell([*SHELL, script], folder, self.environ, **more)
        done.log += ended.stdout
        return ended.returncode

    def _use(self, action: str, given: Mapping[str, Any], folder: Path, id_: str) -> None:
        """Do what an action does, as its documentation says."""
        artifacts = self.state / "artifacts" / id_
        match action.partition("@")[0]:
            case "actions/checkout" | "actions/setup-python" | "actions/cache":
                pass
            case "actions/upload-artifact":
                source, target = folder / given["path"], artifacts / given["name"]
                is_hidden = any(part.startswith(".") for part in Path(given["path"]).parts)
                assert given.get("include-hidden-files") or not is_hidden, "it would upload nothing"
                assert given.get("overwrite") or not target.exists(), "it would not upload over another one"
                if source.exists():
                    shutil.copytree(source, target, dirs_exist_ok=True)
            case "actions/download-artifact":
                for artifact in sorted(artifacts.glob(given["pattern"])):
                    shutil.copytree(artifact, folder / given["path"] / artifact.name)
            case other:
                raise AssertionError(other)


def shell(
    command: list[str], folder: Path, environ: Mapping[str, str], **more: str
) -> subprocess.CompletedProcess[str]:
    """Give a command as a CI service does: what it says is one stream, and nobody is there to answer."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**environ, "PYTHONPATH": str(folder), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def evaluate(condition: str, contexts: Contexts, *, failed: bool) -> bool:
    """Return whether an `if` holds; without always() none does after a failure."""
    holds = bool(_value(condition, contexts))
    return holds and (not failed or "always()" in condition)


def expanded(value: Any, contexts: Contexts) -> Any:
    """Return what an expression, or a text or table with some, comes to."""
    if isinstance(value, dict):
        return {name: expanded(item, contexts) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    if whole := re.fullmatch(r"\$\{\{((?:(?!\}\}).)*)\}\}", value.strip()):
        return _value(whole[1], contexts)
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(_value(found[1], contexts)), value)


def _value(expression: str, contexts: Contexts) -> Any:
    """Return what an expression comes to: lookups, texts, ==, !=, &&, ||, always(), success(), fromJSON().name."""
    words = re.findall(r"'[^']*'|==|!=|&&|\|\||[()]|\.?[\w-]+(?:\.[\w-]+)*", expression)
    assert "".join(words) == re.sub(r"\s(?=(?:[^']*'[^']*')*[^']*$)", "", expression), f"cannot read {expression}"
    operators = {"&&": "and", "||": "or", "==": "==", "!=": "!=", "(": "(", ")": ")"}
    functions = {"always": lambda: True, "success": lambda: True, "fromJSON": partial(json.loads, object_hook=_Fields)}
    said = [
        operators.get(word) or (word if word.startswith(("'", ".")) or word in functions else f"look({word!r})")
        for word in words
    ]
    return eval(" ".join(said), functions | {"look": lambda path: _look(path, contexts)})  # noqa: S307


def _look(path: str, contexts: Contexts) -> Any:
    """Return what a dotted path leads to; what is not there is empty."""
    found: Any = contexts
    for name in path.split("."):
        found = found.get(name, "") if isinstance(found, dict) else ""
    return found


def _github(id_: str, ref: str) -> dict[str, Any]:
    return {
        "ref": f"refs/heads/{ref}",
        "ref_name": ref,
        "event": {"repository": {"default_branch": "main"}},
        "repository": "somebody/whichtorch",
        "server_url": "https://github.com",
        "run_id": id_,
        "token": "secret",
    }


def _as_need(jobs: list[Job]) -> dict[str, Any]:
    """Return what the jobs after it know of a job: of several the worst result, and the outputs."""
    worst = [result for result in ("failure", "skipped") if result in {job.result for job in jobs}]
    return {"result": [*worst, "success"][0], "outputs": jobs[0].outputs}


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _outputs(file: Path) -> dict[str, str]:
    """Return what a step has written to $GITHUB_OUTPUT."""
    return dict(line.split("=", 1) for line in _read(file).splitlines())


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""
