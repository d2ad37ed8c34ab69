#!/bin/sh
# Run a command in CI; where it hangs, say where, and fail after a minute instead of when the job's time is over.
# Arguments: the command. WHICHTORCH names the program where it is not on PATH.
set -eu
code=0
${WHICHTORCH:-whichtorch} run --timeout "${TIME:-30m}" --on-hang stop --json hang.json -- "$@" || code=$?
if [ "$code" -eq 124 ]; then
    echo "hung, or its time was over: hang.json has the answer, the lines above name who waits for whom" >&2
fi
exit "$code"
