#!/usr/bin/env bash
# --mpi-buffers: gradients are averaged on the device where a probe in processes of its own shows that this works (on virtual GPUs it
# does), else in host memory; the row says which it was.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
small=(--model seed-conv --data synthetic:96 --batch 4 --dtype float32 --bucket-bytes 16KiB)

verify() {
  rm -f "$work/rows.jsonl"
  expect_exit 0 "$LOCKSTEP" verify --impl mpi --devices 1,2 "${small[@]}" "$@" --json "$work/rows.jsonl"
}
used() {
  jq -s -c 'map(select(.impl == "mpi") | .mpi_buffers) | unique' "$work/rows.jsonl"
}

verify
[ "$(used)" = '["host"]' ] || fail "default: $(used)"
verify --mpi-buffers device
[ "$(used)" = '["device"]' ] || fail "device: $(used)"
verify --mpi-buffers auto
[ "$(used)" = '["device"]' ] || fail "auto: $(used)"
jq -s -e 'map(select(.impl == "single") | .mpi_buffers) | all(. == null)' "$work/rows.jsonl" >/dev/null || fail "single has buffers of MPI"

# Where the probe fails: its mpirun is one that fails.
mkdir "$work/bin"
printf '#!/bin/sh\ncase "$*" in *mpi-probe*) exit 3 ;; esac\nexec %s "$@"\n' "$(command -v mpirun)" >"$work/bin/mpirun"
chmod +x "$work/bin/mpirun"
export PATH=$work/bin:$PATH
verify --mpi-buffers auto
[ "$(used)" = '["host"]' ] || fail "auto after a failed probe: $(used)"
expect_error 2 'mpi-buffers device: an allreduce of device memory failed in a process of its own; use host or auto$' \
  "$LOCKSTEP" train --impl mpi --devices 2 --steps 1 --no-baseline --mpi-buffers device "${small[@]}"
expect_error 2 "'--mpi-buffers'.*host, device or auto" "$LOCKSTEP" train --impl mpi --mpi-buffers gpu
