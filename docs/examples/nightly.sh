#!/bin/sh
# Run the scripts of your matrix file anew, compare with the last night, and mail what is not well. For cron:
#
#   PATH=/usr/local/bin:/usr/bin:/bin
#   MAILTO=you@example.org
#   17 3 * * * flock --nonblock --close /srv/project/.lock sh /srv/project/nightly.sh
#
# flock lets no night begin before the last one has ended.
cd "$(dirname "$0")" || exit
export WHICHTORCH_HOME=.whichtorch
[ -d .whichtorch/runs ] && set -- --baseline latest # else it is the first night
timeout --kill-after 10m 20h whichtorch matrix --fresh "$@" > night.txt 2>&1
code=$?
whichtorch report >> night.txt 2>&1
whichtorch runs prune --keep 30 >> night.txt 2>&1
[ "$code" -eq 0 ] || mail -s "whichtorch: exit code $code" "${MAILTO:-root}" < night.txt
exit "$code"
