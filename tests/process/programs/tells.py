import json
import os
import resource
import sys

print(
    json.dumps(
        {
            "stdin": sys.stdin.read(),
            "cwd": os.getcwd(),
            "mark": os.environ.get("WHICHTORCH_ATTEMPT"),
            "descriptors": [int(name) for name in os.listdir("/proc/self/fd")],
            "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
            "leads": os.getsid(0) == os.getpid(),
            "oom_score_adj": int(open("/proc/self/oom_score_adj").read()),
            "scheduler": os.sched_getscheduler(0),
        }
    )
)
sys.stderr.write("told\n")
sys.exit(int(sys.argv[1]))
