#!/usr/bin/env bash
# Implementations against one another through the program, on real images: equal bits where the arithmetic is the same,
# derived bounds where only the order of summation differs.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# run NAME OPTIONS...: one run with its log lines, parameters and results under NAME.
run() {
  local name=$1
  shift
  "$LOCKSTEP" train --no-baseline --data fashion-mnist --save "$work/$name.safetensors" --json "$work/$name.json" "$@" >"$work/$name.log"
}

# losses NAME: the logged losses of a run with all their digits, one a line.
losses() { jq -r '.log[].loss' "$work/$1.json"; }

# within BOUND NAME NAME: the largest difference of the logged losses of two runs.
within() {
  paste <(losses "$2") <(losses "$3") | awk -v bound="$1" -v names="$2, $3" '
    { d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d; count++ }
    END { printf "%s: %d losses within %.3g (bound %s)\n", names, count, worst, bound; exit !(count > 1 && worst <= bound) }' ||
    fail "the losses of $2 and $3 differ by more than $1"
}

# The initial values are PyTorch's, bit for bit: md5 of all parameters of torch.manual_seed(42) in registration order.
run initial --impl single --devices 1 --seed 42 --steps 0 --epochs 1
[ "$(tail -c 87360 "$work/initial.safetensors" | md5sum | cut -d' ' -f1)" = 5b82ab78a2187825ad57d81145ecf129 ] ||
  fail "initial values are not PyTorch's"

# With two devices a sum commutes and halving is exact: ddp (both kinds of rank) and mpi have equal bits through an epoch.
run processes --impl ddp --devices 2 --ranks processes --epochs 1
run threads --impl ddp --devices 2 --ranks threads --epochs 1
run mpi --impl mpi --devices 2 --epochs 1
for name in processes threads mpi; do
  grep '^Train Epoch: ' "$work/$name.log" >"$work/$name.lines"
  [ "$(wc -l <"$work/$name.lines")" -eq 47 ] || fail "$name: not 47 log lines"
  cmp "$work/processes.lines" "$work/$name.lines" || fail "$name: log lines differ"
  cmp "$work/processes.safetensors" "$work/$name.safetensors" || fail "$name: final parameters differ"
done
grep -qP '^Train Epoch: 1 \[0/60000 \(0%\)\]\tLoss: 2\.\d{6}$' "$work/processes.lines" || fail "the log line's format"
grep -qP '^Train Epoch: 1 \[58880/60000 \(98%\)\]\tLoss: \d\.\d{6}$' "$work/processes.lines" || fail "the last log line"
grep -qP '^Test set: average loss \d\.\d+, accuracy: \d+/10000 ' "$work/processes.log" || fail "the accuracy line"
jq -e '.rank_results | length == 2 and all(.max_rss_bytes < 1073741824)' "$work/processes.json" >/dev/null ||
  fail "a rank took 1 GiB or more"

# dp on the same global batches: float32 rounding of another order of summation, before training amplifies it.
run dp10 --impl dp --devices 2 --steps 10 --log-every 1 --epochs 1
run ddp10 --impl ddp --devices 2 --steps 10 --log-every 1 --epochs 1
within 2e-6 dp10 ddp10

# float64: rounding stays below 1e-10 for 200 steps, whoever adds up. 6400 samples are those steps.
small=(--data synthetic:6400 --dtype float64 --steps 200 --epochs 1)
run single64 --impl single --devices 1 --global-batch 32 "${small[@]}"
run dp64 --impl dp --devices 2 --batch 16 "${small[@]}"
run processes64 --impl ddp --devices 2 --batch 16 "${small[@]}"
run threads64 --impl ddp --devices 2 --ranks threads --batch 16 "${small[@]}"
run mpi64 --impl mpi --devices 2 --batch 16 "${small[@]}"
for name in dp64 processes64 threads64 mpi64; do
  within 1e-10 single64 $name
done

# Small buckets overlap: recorded events show a reduction that starts before the last backward kernel ends.
run overlap --impl ddp --devices 2 --bucket-bytes 16KiB --steps 100 --epochs 1 --log-every 0
jq -e '.counters | .steps == 100 and .buckets > 2 and .allreduces == 2 * .steps * .buckets and .overlap_measured > 0
  and .overlap_steps > 0' "$work/overlap.json" >/dev/null ||
  fail "no step with overlap: $(jq -c .counters "$work/overlap.json")"
jq -c '.counters | {buckets, overlap_steps, overlap_measured, overlap_lead_seconds}' "$work/overlap.json"

# Nothing is left behind.
[ -z "$(ls -A "$TMPDIR")" ] || fail "left in the temporary folder: $(ls -A "$TMPDIR")"
await 10 no_shm_left || fail "shared memory was left behind: $(shm_unmapped)"
! pgrep -f "$TMPDIR/lockstep-" || fail "a process is left"
echo "all equivalent"
