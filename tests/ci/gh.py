"""A stand-in for GitHub's command line: it does what the workflow asks of it, in the folder $GH_STATE.

artifacts/RUN/NAME/ is what runs have uploaded, `completed` has the ids of those that are over, the last first,
issues.json the texts of the open issues, and calls.jsonl what it was called with.
"""

import json
import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path

STATE = Path(os.environ["GH_STATE"])


def main(words: list[str]) -> None:
    """Do what a command means, or end with 1 and a word where there is nothing."""
    with (STATE / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    if not (os.environ.get("GH_TOKEN") and os.environ.get("GH_REPO")):
        sys.exit("gh: To use GitHub CLI in a GitHub Actions workflow, set the GH_TOKEN environment variable.")
    file = STATE / "issues.json"
    issues = json.loads(file.read_text()) if file.exists() else {}
    options = dict(pairwise(words))
    match words[:2]:
        case ["run", "list"]:
            assert options["--jq"] == f".[].{options['--json']}"
            completed = STATE / "completed"
            print(completed.read_text() if completed.exists() else "", end="")
        case ["run", "download"]:
            folder = STATE / "artifacts" / words[2] / options["--name"]
            if not folder.is_dir():
                sys.exit("no valid artifacts found to download")
            shutil.copytree(folder, options["--dir"], dirs_exist_ok=True)
        case ["label", "create"]:
            assert "--force" in words, "it may be there"
        case ["issue", "list"]:
            assert options["--jq"] == f".[].{options['--json']}"
            print("\n".join(issues))
        case ["issue", "create"]:
            issues[str(len(issues) + 1)] = [Path(options["--body-file"]).read_text()]
        case ["issue", "comment"]:
            issues[words[2]].append(Path(options["--body-file"]).read_text())
        case _:
            sys.exit(f"unknown command {words[:2]}")
    file.write_text(json.dumps(issues))


main(sys.argv[1:])
