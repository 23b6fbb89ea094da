#!/usr/bin/env bash
# Proves the paths that only a GPU can: one line a check, in under eight minutes on one GPU.
#
#     tests/gpu/check.sh                   from the root, in an environment with a CUDA build of torch
#     DEVICE=cpu tests/gpu/check.sh        the same script without a GPU; what needs one is skipped
#
# Not there to be checked: CUDA IPC. Weights cross between processes through shared memory on every device.
set -uo pipefail
cd "$(dirname "$0")/../.."
export DEVICE=${DEVICE:-cuda:0} PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python}
place=$(mktemp -d -t scalerl-gpu-XXXXXX)
trap 'rm -rf "$place"' EXIT
failed=0

check() { # name, seconds allowed, command...
    local name=$1 allowed=$2 start=$SECONDS status=0 last
    shift 2
    timeout "$allowed" "$@" >"$place/output" 2>&1 || status=$?
    last=$(tail -n 1 "$place/output")
    case $status in
    0) echo "ok    $name ($((SECONDS - start)) s): $last" ;;
    77) echo "skip  $name: $last" ;;
    *)
        echo "FAIL  $name (exit $status after $((SECONDS - start)) s): $last"
        tail -n 25 "$place/output" | sed 's/^/      /'
        failed=1
        ;;
    esac
}

for name in device weights learner engine memory adamw_8bit; do
    check "$name" 60 "$python" -m tests.gpu.checks "$name"
done
for run in bf16 fp32 lora vllm; do
    check "run, $run" 90 "$python" -m tests.gpu.checks run "$run" "$place/$run"
done
exit $failed
