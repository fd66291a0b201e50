#!/usr/bin/env bash
# Ranks started by hand, one in each shell, with torchrun's variables (init_method env://): the same run as --devices N; what
# contradicts is one line, exit code 2 or 3, and nothing hangs.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
options=(train --data synthetic:2100 --batch 16 --epochs 2 --log-every 5 --timeout 20)

# A port that nobody listens on, below those that the kernel gives out; another one for every run.
port=$((20000 + $$ % 8000))
next_port() {
  port=$((port + 1))
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
}

# start NAME RANK WORLD COMMAND...: a rank in the background; its output in NAME.out and NAME.err, its exit code in NAME.rc.
# The limit is far above --timeout: 124 says that it hung.
pids=()
start() {
  local name=$1 rank=$2 world=$3
  shift 3
  (
    code=0
    RANK=$rank WORLD_SIZE=$world LOCAL_RANK=${local_rank-$rank} MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      timeout 60 "$@" >"$work/$name.out" 2>"$work/$name.err" || code=$?
    echo "$code" >"$work/$name.rc"
  ) &
  pids+=($!)
}
finish() {
  wait "${pids[@]}"
  pids=()
}

# ended NAME CODE [PATTERN]: how a rank ended: silently with 0, otherwise with one line that matches.
ended() {
  local code lines
  code=$(cat "$work/$1.rc")
  lines=$(wc -l <"$work/$1.err")
  [ "$code" -eq "$2" ] || fail "$1: exit $code instead of $2: $(cat "$work/$1.err")"
  if [ "$2" -eq 0 ]; then
    [ "$lines" -eq 0 ] || fail "$1 complains: $(cat "$work/$1.err")"
  else
    [ "$lines" -eq 1 ] || fail "$1: not one line: $(cat "$work/$1.err")"
    grep -qE "$3" "$work/$1.err" || fail "$1: no '$3' in: $(cat "$work/$1.err")"
  fi
}

# Four shells give what --devices 4 gives: loss lines, accuracy and parameters. Rank 0 comes last: the others wait for it.
expect_exit 0 "$LOCKSTEP" "${options[@]}" --devices 4 --save "$work/launched.safetensors"
grep -E '^(Train Epoch|Test set)' "$work/out" >"$work/launched"
[ "$(grep -c '^Train Epoch: ' "$work/launched")" -eq 14 ] || fail "not 7 loss lines an epoch: $(cat "$work/launched")"
next_port
for rank in 3 2 1 0; do
  start "rank$rank" $rank 4 "$LOCKSTEP" "${options[@]}" --devices 4 --save "$work/by-hand.safetensors"
done
finish
for rank in 0 1 2 3; do ended "rank$rank" 0; done
grep -E '^(Train Epoch|Test set)' "$work/rank0.out" | cmp - "$work/launched" || fail "other loss lines than --devices 4"
for rank in 1 2 3; do [ ! -s "$work/rank$rank.out" ] || fail "rank $rank prints as well: $(cat "$work/rank$rank.out")"; done
cmp "$work/launched.safetensors" "$work/by-hand.safetensors" || fail "other parameters than --devices 4"

# What one rank can see by itself: at once, exit code 2.
try=("$LOCKSTEP" train --data synthetic:512 --epochs 1 --timeout 1)
SECONDS=0
expect_error 2 "RANK: expected a number from 0 to 3, found '4'" env RANK=4 WORLD_SIZE=4 "${try[@]}" --devices 4
expect_error 2 "RANK: expected a number from 0 to 1, found '-1'" env RANK=-1 WORLD_SIZE=2 "${try[@]}"
expect_error 2 'WORLD_SIZE is 4, --devices says 2' env RANK=0 WORLD_SIZE=4 "${try[@]}" --devices 2
expect_error 2 'WORLD_SIZE is 0, --devices says 2' env RANK=0 WORLD_SIZE=0 "${try[@]}"
expect_error 2 'RANK is set, WORLD_SIZE is not' env RANK=1 "${try[@]}"
expect_error 2 'WORLD_SIZE is set, RANK is not' env WORLD_SIZE=2 "${try[@]}"
expect_error 2 'LOCAL_RANK: expected a number' env RANK=1 WORLD_SIZE=2 LOCAL_RANK=one "${try[@]}"
expect_error 2 'device 99 is needed, the host has 4' env LOCKSTEP_VGPU_COUNT=4 RANK=1 WORLD_SIZE=2 LOCAL_RANK=99 "${try[@]}"
for bad in 0 70000 http; do
  expect_error 2 'MASTER_PORT: expected a' env RANK=1 WORLD_SIZE=2 MASTER_PORT=$bad "${try[@]}"
done
expect_error 2 "MASTER_ADDR 'no.such.host.invalid' does not resolve" \
  env RANK=1 WORLD_SIZE=2 MASTER_ADDR=no.such.host.invalid "${try[@]}"
# Four shells with what is one process would be four runs that write the same files.
expect_error 2 'WORLD_SIZE is 4: only ranks of ddp' env RANK=1 WORLD_SIZE=4 "${try[@]}" --impl dp --devices 4
expect_error 2 'WORLD_SIZE is 4: only ranks of ddp' env RANK=1 WORLD_SIZE=4 "${try[@]}" --ranks threads --devices 4
expect_error 2 'WORLD_SIZE is 2: only ranks of ddp' env RANK=0 WORLD_SIZE=2 "$LOCKSTEP" verify --data synthetic:600
expect_error 2 'baseline needs a run that lockstep starts' env RANK=0 WORLD_SIZE=2 "${try[@]}" --baseline
expect_error 2 'json needs a run that lockstep starts' env RANK=0 WORLD_SIZE=2 "${try[@]}" --json "$work/never.json"
expect_error 2 'json needs a run that lockstep starts' env RANK=0 WORLD_SIZE=2 "$LOCKSTEP" eval --impl ddp \
  --devices 2 --data synthetic:512 --load "$work/launched.safetensors" --json "$work/never.json"

# Peers that do not come, or an address where nobody answers: exit code 3 after --timeout.
next_port
expect_error 3 "rank 1 of 2 did not come to 127.0.0.1 port $port within 1 s" \
  env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${try[@]}"
expect_error 3 "rank 0 does not answer on 127.0.0.1 port $port within 1 s" \
  env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${try[@]}"
# 192.0.2.0/24 is reserved for documentation (RFC 5737): no host has such an address.
expect_error 3 'rank 0 does not answer on 192.0.2.1 port' \
  env RANK=1 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=$port "${try[@]}"
[ "$SECONDS" -lt 30 ] || fail "$SECONDS s for what ends within a second each"

# Contradictions between ranks: all that have come end at once, each with a line of its own.
together=("$LOCKSTEP" "${options[@]}" --timeout 20)
SECONDS=0
next_port
start zero 0 3 "${together[@]}" --devices 3
start one 1 3 "${together[@]}" --devices 3
local_rank=2 start other 1 3 "${together[@]}" --devices 3
finish
ended zero 2 'two processes say that their RANK is 1'
ended one 2 "rank 0 on 127.0.0.1 port $port has ended the rendezvous"
ended other 2 "rank 0 on 127.0.0.1 port $port has ended the rendezvous"
next_port
start zero 0 2 "${together[@]}" --devices 2
start one 1 3 "${together[@]}" --devices 3
finish
ended zero 2 'rank 1 has WORLD_SIZE 3, rank 0 has 2'
ended one 2 'has ended the rendezvous'
for different in '--lr 0.1' '--seed 1' '--batch 8' '--optimizer adam' '--no-shuffle'; do
  next_port
  start zero 0 2 "${together[@]}" --devices 2
  # shellcheck disable=SC2086 # an option and its value
  start one 1 2 "${together[@]}" --devices 2 $different
  finish
  ended zero 2 'rank 1 and rank 0 differ in model, dtype, buckets, training or communication options'
  ended one 2 'has ended the rendezvous'
done
[ "$SECONDS" -lt 20 ] || fail "$SECONDS s: ranks waited for the time limit"

# Every process with RANK 0, as in a script that says rank=0 for all: the second one finds the port taken, the first one waits
# for rank 1 until the time limit.
next_port
start a 0 2 "${try[@]}" --devices 2
start b 0 2 "${try[@]}" --devices 2
finish
waits=a late=b
[ "$(cat "$work/a.rc")" -eq 3 ] || { waits=b late=a; }
ended $waits 3 'rank 1 of 2 did not come'
ended $late 2 "port $port on 127.0.0.1 is in use, by a second process with RANK 0"
