"""Run the probe inside an environment and read what it found."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.environments.commander import Commander, InstallError
from matrix.model import Fingerprint

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

PROBE = Path(__file__).parent / "inside" / "probe.py"
PROBE_TIMEOUT = 300.0  # seconds: `import torch` from a cold disk takes up to a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the probe says; where `problem` is set the canary failed, and much may be missing."""

    problem: str | None
    log: Path
    torch: str = ""
    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    watched: tuple[str, ...] = ()


def inspect(
    interpreter: Path,
    env: Mapping[str, str],
    logs: Path,
    name: str,
    commander: Commander,
    cancelled: threading.Event | None,
) -> Findings:
    """Probe an environment. A canary that fails, dies or hangs is a finding; only an interrupt is raised."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    log, answer = logs / f"probe-{safe}.log", logs / f"probe-{safe}.json"
    logs.mkdir(parents=True, exist_ok=True)
    answer.unlink(missing_ok=True)
    # a copy of its own: neither the tool's folder nor its bytecode is part of the environment
    script = logs / "probe.py"
    shutil.copyfile(PROBE, script)
    argv = (str(interpreter), str(script), str(answer))
    how = ""
    try:
        ending = commander.run(argv, env=env, log=log, what="the canary", cancelled=cancelled, timeout=PROBE_TIMEOUT)
        if ending.signal:
            how = f"it died with {ending.signal}"
        elif ending.exit_code != 0:
            how = f"exit code {ending.exit_code}"
    except InstallError as error:
        if error.log is None:  # an interrupt
            raise
        how = error.reason
    try:
        found = json.loads(answer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Findings(problem=f"the canary did not start: {how or 'no answer'}", log=log)
    problem = None
    if found.get("error") or found["step"] != "done" or how:
        problem = f"the canary fails at {found['step']!r}: {found.get('problem') or how or 'it ended early'}"
    packages = found.get("packages", {})
    return Findings(
        problem=problem,
        log=log,
        torch=packages.get("torch", found.get("torch", "")),
        python=found.get("python", ""),
        packages=packages,
        fingerprint=Fingerprint.model_validate(found.get("fingerprint", {})),
        watched=tuple(found.get("watched", ())),
    )
