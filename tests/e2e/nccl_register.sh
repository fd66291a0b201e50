#!/usr/bin/env bash
# --nccl-register: gradients in memory of NCCL, registered on every rank, have the bits of those that are not; rows and reproducing lines
# say so; graphs and the modes that find races see nothing wrong; what cannot register is refused.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
small=(--model seed-conv --data synthetic:160 --batch 4 --dtype float32 --bucket-bytes 4KiB)

# verify FILE OPTION...: its rows in FILE, without a line on stderr.
verify() {
  local file=$1
  shift
  expect_exit 0 "$LOCKSTEP" verify --impl ddp --devices 2,4 "${small[@]}" "$@" --json "$file"
  [ ! -s "$work/err" ] || fail "$* says: $(head -n 1 "$work/err")"
}
# cases FILE: the cases of ddp and what came of them.
cases() {
  jq -c 'select(.impl == "ddp") | [.ranks, .devices, .status, .param_hash]' "$1"
}

verify "$work/plain.jsonl"
verify "$work/registered.jsonl" --nccl-register
[ "$(cases "$work/plain.jsonl" | wc -l)" -eq 4 ] || fail "not 4 cases: $(cases "$work/plain.jsonl")"
[ "$(cases "$work/plain.jsonl")" = "$(cases "$work/registered.jsonl")" ] || fail "other bits: $(cases "$work/registered.jsonl")"
jq -s -e 'all(.status == "PASSED" and .nccl_register == (if .impl == "ddp" then false else null end)
  and (.command | contains("--nccl-register") | not))' "$work/plain.jsonl" >/dev/null || fail "rows without the option"
jq -s -e 'all(.status == "PASSED" and .nccl_register == (if .impl == "ddp" then true else null end)
  and (.command | contains("--nccl-register")) == (.impl == "ddp"))' "$work/registered.jsonl" >/dev/null || fail "rows with the option"

# Graphs, and evaluation between the epochs.
verify "$work/graph.jsonl" --graph
verify "$work/both.jsonl" --graph --nccl-register
[ "$(cases "$work/graph.jsonl")" = "$(cases "$work/both.jsonl")" ] || fail "other bits as graphs: $(cases "$work/both.jsonl")"

# train OPTION...: the hash of the parameters.
train() {
  expect_exit 0 "$LOCKSTEP" train --no-baseline --impl ddp --devices 3 --epochs 2 --log-every 0 "${small[@]}" "$@" --json "$work/row.json"
  [ ! -s "$work/err" ] || fail "$* says: $(head -n 1 "$work/err")"
  tail -n 1 "$work/row.json" | jq -r .param_hash
}
expected=$(train)
for ranks in processes threads; do
  for mode in SCHED=check SCHED=fuzz:3 GUARD=1 DELAY=collective@1=2ms; do
    export "LOCKSTEP_VGPU_$mode"
    found=$(train --ranks $ranks --nccl-register)
    unset "LOCKSTEP_VGPU_${mode%%=*}"
    [ "$found" = "$expected" ] || fail "$ranks: other parameters with LOCKSTEP_VGPU_$mode"
  done
done

# A sweep's base is single, which has no NCCL.
expect_exit 0 "$LOCKSTEP" sweep --impl ddp --devices 2 --steps 4 --scaling weak --ranks threads "${small[@]}" --nccl-register -o "$work/sweep.jsonl"
jq -s -e 'length == 1 and all(.status == "PASSED" and .nccl_register and .verification == "PASSED"
  and (.command | contains("--nccl-register")))' "$work/sweep.jsonl" >/dev/null || fail "the sweep: $(cat "$work/out")"

# Under all, what cannot register is skipped; asked for, it is refused.
expect_exit 0 "$LOCKSTEP" verify --impl all --devices 2 --ranks threads "${small[@]}" --nccl-register
grep -qE '^dp .* SKIPPED\(NCCL does not reduce the gradients of dp\)' "$work/out" || fail "dp is not skipped: $(cat "$work/out")"
for impl in single dp mpi; do
  devices=$([ $impl = single ] && echo 1 || echo 2)
  for command in train verify; do
    expect_error 2 "^lockstep: $impl: --nccl-register: NCCL does not reduce its gradients" \
      "$LOCKSTEP" $command --impl $impl --devices "$devices" "${small[@]}" --nccl-register
  done
  expect_error 2 "^lockstep: $impl: --nccl-register" "$LOCKSTEP" sweep --impl ddp,$impl --devices "$devices" "${small[@]}" --nccl-register \
    -o "$work/refused.jsonl"
done
