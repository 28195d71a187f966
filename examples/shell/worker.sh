#!/bin/sh
# A worker that runs a shell command for each job. The arguments arrive on standard input as JSON, CONVOKE_* in the
# environment name the job, its output becomes the job's log, and the exit code decides: 0 completes, any other
# fails. Try it:
#
#   sh examples/shell/worker.sh &
#   convoke enqueue greet --queue shell --args '{"name":"Ada"}' --wait
set -eu

exec "${CONVOKE:-convoke}" worker run --queue shell --concurrency "${CONCURRENCY:-4}" \
    --exec "${COMMAND:-echo \"job \$CONVOKE_JOB_ID, attempt \$CONVOKE_ATTEMPT:\"; cat}"
