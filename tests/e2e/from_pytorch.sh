#!/usr/bin/env bash
# Every command of docs/from-pytorch.md runs as it stands: the blocks marked `sh`, in order, in one folder, exit 0 and complain
# of nothing.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
page=$LOCKSTEP_SOURCE/docs/from-pytorch.md
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
mkdir "$work/bin" "$work/scratch" "$work/blocks"
ln -s "$(realpath "$LOCKSTEP")" "$work/bin/lockstep"
PATH=$work/bin:$PATH
cd "$work/scratch"

# What the page takes for granted. MNIST: Fashion-MNIST's files have the same names and sizes.
mkdir out cifar-10-batches-bin
ln -s /usr/share/datasets/fashion-mnist out/mnist
# CIFAR-10: 10,000 records a file, a label and 3072 bytes.
for label in 0 1 2 3 4 5 6 7 10 11; do
  # shellcheck disable=SC2059 # the label's byte, in octal, is the format
  printf "\\$label"
  head -c 3072 /dev/zero | tr '\0' "\\$label"
done >"$work/ten"
seq 1000 | sed "s|.*|$work/ten|" | xargs cat >cifar-10-batches-bin/test_batch.bin
for i in 1 2 3 4 5; do ln cifar-10-batches-bin/test_batch.bin "cifar-10-batches-bin/data_batch_$i.bin"; done
# Arrays: 320 training and 80 test samples of 28x28 with labels 0 to 9.
for part in train:32 test:8; do
  for _ in $(seq "${part#*:}"); do printf '\0\1\2\3\4\5\6\7\10\11'; done >"${part%:*}-y.u8"
  head -c $((${part#*:} * 10 * 784)) cifar-10-batches-bin/test_batch.bin >"${part%:*}-x.u8"
done

# The page's rendezvous port, replaced by one that nobody listens on.
port=$((20000 + $$ % 8000))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done

# Blocks into files, in order; indented or unmarked ones are not commands to be run.
awk -v folder="$work/blocks" '
  /^```/ { inside = !inside; if (inside) { runs = $0 == "```sh"; if (runs) file = sprintf("%s/%03d-line-%d", folder, ++count, NR) } next }
  inside && runs { print >file }' "$page"
blocks=("$work/blocks"/*)
[ "${#blocks[@]}" -ge 20 ] || fail "only ${#blocks[@]} blocks found in $page"
for block in "${blocks[@]}"; do
  grep -q '^ *lockstep \|^run="lockstep ' "$block" || fail "${block##*/} has no command: $(cat "$block")"
  sed -i "s/MASTER_PORT=29500/MASTER_PORT=$port/" "$block"
  code=0
  timeout 60 bash -eu -o pipefail "$block" >"$work/out" 2>"$work/err" </dev/null || code=$?
  if [ "$code" -ne 0 ] || [ -s "$work/err" ]; then
    fail "$page, block ${block##*/}: exit $code: $(cat "$work/out" "$work/err" "$block")"
  fi
  [ -s "$work/out" ] || fail "$page, block ${block##*/} says nothing"
  mv "$work/out" "$work/${block##*/}.out"
done

# What the page says of them. said WORDS: the loss lines of the block that holds these words.
said() {
  local found
  found=$(grep -lF -- "$1" "$work/blocks"/*) || fail "no block has '$1'"
  grep -E '^Train Epoch' "$work/${found##*/}.out"
}
said MASTER_PORT >by-hand
whole='lockstep train --data synthetic:4000 --devices 4 --epochs 2'
launched=$(grep -lxF "$whole" "$work/blocks"/*) || fail "no block is '$whole'"
grep '^Train Epoch' "$work/${launched##*/}.out" >launched
cmp by-hand launched || fail "four shells and --devices 4 differ"
said '--log-every 10' >default
said 'log-softmax' | cmp - default || fail "the spec is not seed-cnn, loss for loss"
while read -r line; do
  grep -qxF "$line" "$page" || fail "not on the page: $line"
done <default
