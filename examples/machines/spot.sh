#!/usr/bin/env bash
# Train on a spot machine, and save when the cloud announces that it will take the machine away:
#   examples/machines/spot.sh train RECIPE --data DATA --out RUN [key=value ...]
# The clouds announce it 30 seconds (Google) to two minutes (Amazon) before, at an address that only the machine can
# reach. The run then saves and exits. If the machine is still there when the notice has gone, the run resumes;
# otherwise a new machine with the same disk resumes it (see train.service). SPOT_NOTICE is the command that succeeds
# while there is a notice.
set -uo pipefail

notice() {
    if [ -n "${SPOT_NOTICE:-}" ]; then
        bash -c "$SPOT_NOTICE"
        return
    fi
    local token
    token=$(curl -fsm 1 -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 60" http://169.254.169.254/latest/api/token) &&
        curl -fsm 1 -H "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest/meta-data/spot/instance-action \
            >/dev/null && return
    [ "$(curl -fsm 1 -H "Metadata-Flavor: Google" \
        http://metadata.google.internal/computeMetadata/v1/instance/preempted)" = TRUE ]
}

stopping=
run=
trap 'stopping=1; [ -z "$run" ] || kill -TERM "$run"' TERM INT
while true; do
    dragoman "$@" &
    run=$!
    (
        until notice; do sleep 2; done
        echo "The machine will be taken away: saving." >&2
        kill -TERM "$run"
    ) &
    watcher=$!
    # A signal ends `wait` before the run has ended.
    while kill -0 "$run" 2>/dev/null; do wait "$run"; done
    wait "$run"
    code=$?
    run=
    kill "$watcher" 2>/dev/null
    [ "$code" = 75 ] || exit "$code"
    while [ -z "$stopping" ] && notice; do sleep 2; done
    [ -z "$stopping" ] || exit "$code"
done
