#!/usr/bin/env bash
# mpi under a real mpirun: equal to ddp bit for bit at W = 2, and refused where mpirun and the options disagree.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
common=(--devices 2 --data synthetic:1024 --batch 16 --steps 12 --log-every 1 --bucket-bytes 4096)

losses() { grep '^Train Epoch' "$work/out"; }

for dtype in float32 float64; do
  expect_exit 0 "$LOCKSTEP" train --impl ddp "${common[@]}" --dtype "$dtype" --save "$work/ddp.safetensors"
  losses >"$work/ddp.log"
  [ "$(wc -l <"$work/ddp.log")" -eq 12 ] || fail "ddp did not log 12 steps"
  expect_exit 0 "$LOCKSTEP" train --impl mpi "${common[@]}" --dtype "$dtype" --save "$work/mpi.safetensors"
  losses | diff "$work/ddp.log" - || fail "losses of mpi and ddp differ in $dtype"
  cmp "$work/ddp.safetensors" "$work/mpi.safetensors" || fail "parameters of mpi and ddp differ in $dtype"
  expect_exit 0 "$LOCKSTEP" train --impl ddp --ranks threads "${common[@]}" --dtype "$dtype" --save "$work/threads.safetensors"
  cmp "$work/ddp.safetensors" "$work/threads.safetensors" || fail "ranks as threads differ from processes in $dtype"
  # Started from outside, as under a cluster's mpirun.
  expect_exit 0 mpirun -n 2 --oversubscribe --bind-to none "$LOCKSTEP" train --impl mpi "${common[@]}" \
    --dtype "$dtype" --save "$work/outside.safetensors"
  cmp "$work/ddp.safetensors" "$work/outside.safetensors" || fail "mpirun from outside differs in $dtype"
done

# mpirun starts two processes for a run of three devices.
expect_exit 2 mpirun -n 2 --oversubscribe --bind-to none "$LOCKSTEP" train --impl mpi --devices 3 \
  --data synthetic:1024 --batch 16 --steps 2
[ "$(grep -c '^lockstep: ' "$work/err")" -eq 1 ] || { cat "$work/err" >&2; fail "not one line"; }
grep -q 'the run has 3 devices, mpirun started 2 processes' "$work/err" || { cat "$work/err" >&2; fail "wrong line"; }
