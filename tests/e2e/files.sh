#!/usr/bin/env bash
# Files that options name: what is no file is refused at once, links stay, no result destroys another, result files keep their
# rows, and a run that is refused leaves nothing.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$work"
# Commands that would wait for ever on a pipe, or compute for long before they refuse, end here instead.
lockstep() { timeout 60 "$LOCKSTEP" "$@"; }
short=(--impl single --data synthetic:640 --steps 2 --model "flatten; linear 10; log-softmax" --no-baseline --log-every 0)
long=(--impl single --data synthetic:60000 --epochs 1000000)
train() { lockstep train "${short[@]}" "$@"; }

# Only files are replaced, and that is looked at before anything is computed.
mkfifo pipe pipe.pth pipe.safetensors
expect_error 2 "pipe: expected a file, found a device, pipe" lockstep data import pipe --from mnist:/nonexistent
for option in --save --save-grads; do
  expect_error 2 "$option pipe.pth: expected a file, found" lockstep train "${long[@]}" $option pipe.pth
done
expect_error 2 "pipe.safetensors: expected a file, found" lockstep train "${long[@]}" --checkpoint pipe.safetensors
[[ -p pipe && -p pipe.pth && -p pipe.safetensors ]] || fail "a pipe has been replaced"

# A link stays, and what it leads to is written.
mkdir elsewhere
ln -s elsewhere/a.pth a.pth
ln -s elsewhere/a.raw a.raw
expect_exit 0 train --save a.pth
expect_exit 0 lockstep data import a.raw --from synthetic:10
[[ -L a.pth && -f elsewhere/a.pth ]] || fail "--save did not follow a link"
[[ -L a.raw && -f elsewhere/a.raw ]] || fail "data import did not follow a link"
expect_exit 0 lockstep data import a.raw --from raw:elsewhere/a.raw

# A pipe in place of an input is refused, not waited for.
mkdir idx
mkfifo idx/train-images
printf '\0\0\10\1\0\0\0\1\0' >idx/train-labels
expect_error 2 "train-images: expected a file, found a device, pipe" lockstep data check "idx:$work/idx"
expect_error 2 "pipe: expected a file, found" lockstep data check raw:pipe
expect_error 2 "pipe: expected a file, found" lockstep data import new.raw --train-x pipe --train-y pipe --shape 1
expect_error 2 "pipe.pth: expected a file, found" train --load pipe.pth
expect_error 2 "pipe.safetensors: expected a file, found" train --resume pipe.safetensors
expect_error 2 "'pipe' is not a network" lockstep train --model pipe

# Options that name one file, however they spell it.
ln -s . here
ln -s b.pth b-link.pth
apart() { # OPTION OPTION WORDS...: a run with the words is refused, naming both options.
  local first=$1 second=$2
  shift 2
  expect_error 2 "$first .* and $second .* one file" lockstep "$@"
}
apart --save --save-grads train "${long[@]}" --save b.pth --save-grads b.pth
apart --save --save-grads train "${long[@]}" --save b.pth --save-grads ./b.pth
apart --save --save-grads train "${long[@]}" --save here/b.pth --save-grads "$work/b.pth"
apart --save --save-grads train "${long[@]}" --save b-link.pth --save-grads b.pth
apart --save --checkpoint train "${long[@]}" --save c.safetensors --checkpoint c.safetensors
apart --save --json train "${long[@]}" --save d.safetensors --json d.safetensors
apart --load --save-grads train "${long[@]}" --load a.pth --save-grads elsewhere/a.pth
apart --load --json train "${long[@]}" --load a.pth --json a.pth
apart --load --json eval --data synthetic:64 --load a.pth --json a.pth
apart --data --json train "${long[@]}" --data raw:a.raw --json elsewhere/a.raw
echo 'flatten; linear 10; log-softmax' >net
for command in "train --json" "verify --json" "eval --load a.pth --json" "sweep -o"; do
  # shellcheck disable=SC2086 # a command and its options
  apart --model "${command##* }" ${command%% *} --model net ${command#* } net
done
head -c 4 /dev/zero >x
expect_error 2 "x, is that of --train-y" lockstep data import x --train-x a.raw --train-y ./x --shape 1
[ "$(find . -name 'b.pth' -o -name '[cd].safetensors')" = "" ] || fail "a refused run has written"
[ "$(cat net)" = "flatten; linear 10; log-softmax" ] || fail "a network's file is destroyed"
cmp -s x <(head -c 4 /dev/zero) || fail "a file of plain numbers is destroyed"
expect_exit 0 train --load a.pth --save a.pth
one_epoch=(--impl single --data synthetic:64 --model "flatten; linear 10; log-softmax" --no-baseline --log-every 0)
expect_exit 0 lockstep train "${one_epoch[@]}" --epochs 1 --checkpoint c.safetensors
expect_exit 0 lockstep train "${one_epoch[@]}" --epochs 2 --resume c.safetensors --checkpoint c.safetensors

# Rows go into pipes and devices too.
train --json /dev/stdout | grep '^{' | jq -e '.status == "DONE"' >checked || fail "no row on /dev/stdout"
lockstep eval --data synthetic:64 --model net --load a.pth --json /dev/stdout | grep '^{' |
  jq -e '.kind == "eval"' >checked || fail "no row of eval on /dev/stdout"
expect_exit 0 train --json /dev/null
cat pipe >from-pipe & # one reader gets the whole: a check before the run does not end it
reader=$!
expect_exit 0 train --json pipe
wait $reader
jq -e '.status == "DONE"' from-pipe >checked || fail "no row in a pipe"

# Behind a row that was cut the next one starts on a line of its own, and the report leaves out the cut one alone.
printf '{"schema":1,"kind":"sw' >rows
lockstep sweep --impl single --devices 1 --data synthetic:256 --steps 3 --warmup 1 --scaling weak --model net -o rows >table
[ "$(wc -l <rows)" -eq 2 ] || fail "the row after a cut one: $(cat rows)"
tail -n 1 rows | jq -e '.status == "PASSED"' >checked || fail "the row after a cut one is lost"
expect_error 0 "rows line 1 is left out" lockstep report rows -o report
expect_exit 0 train --json rows
[ "$(wc -l <rows)" -eq 3 ] || fail "an empty line before a row: $(cat rows)"

# A report reads pipes.
expect_exit 0 lockstep report <(tail -n 2 rows) -o report
tail -n 2 rows | lockstep report /dev/stdin -o report >index || fail "no report of /dev/stdin"

# A run that is refused leaves no empty result file.
expect_error 2 "TMPDIR" env TMPDIR=/nonexistent "$LOCKSTEP" train "${short[@]}" --json left.jsonl
expect_error 2 "/nonexistent" lockstep verify --determinism --data mnist:/nonexistent --json left.jsonl
expect_error 2 "belongs to benchmarks" lockstep micro --allreduce --benchmark_filter=x --json left.jsonl
expect_error 2 "/nonexistent" lockstep sweep --data mnist:/nonexistent -o left.jsonl
[ ! -e left.jsonl ] || fail "a refused run leaves an empty result file"
echo "files are read, written and kept apart as they are named"
