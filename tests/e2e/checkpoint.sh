#!/usr/bin/env bash
# Parameters saved by a training run and evaluated again, in both formats and with PyTorch where it is installed.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fashion=/usr/share/datasets/fashion-mnist

# A short training run; its last line of the test set is what every file of its parameters must give.
expect_exit 0 "$LOCKSTEP" train --impl ddp --devices 2 --steps 150 --lr 0.05 --log-every 0 --save "$work/model.pth"
trained=$(grep '^Test set' "$work/out")
[[ "$trained" =~ accuracy:\ ([0-9]+)/10000 ]] || fail "no accuracy: $trained"
correct=${BASH_REMATCH[1]}
[ "$correct" -gt 5000 ] || fail "after 150 steps: $trained" # one class in ten is 1000: it has learnt

# same_accuracy FILE OPTION...: eval of FILE gives what training ended with.
same_accuracy() {
  local file=$1
  shift
  expect_exit 0 "$LOCKSTEP" eval --load "$file" "$@"
  [ "$(grep -o 'accuracy.*' "$work/out")" = "$(grep -o 'accuracy.*' <<<"$trained")" ] ||
    fail "eval of $file gives $(cat "$work/out"), training $trained"
}
same_accuracy "$work/model.pth"
same_accuracy "$work/model.pth" --impl ddp --devices 3 --json "$work/eval.json"
[ "$(jq -r '"\(.kind) \(.correct) \(.samples) \(.status)"' "$work/eval.json")" = "eval $correct 10000 DONE" ] ||
  fail "eval.json: $(cat "$work/eval.json")"
same_accuracy "$work/model.pth" --impl mpi --devices 2
same_accuracy "$work/model.pth" --impl dp --devices 2 --batch 100
mkdir "$work/test" # the test files are enough
cp "$fashion"/t10k-* "$work/test/"
same_accuracy "$work/model.pth" --data "mnist:$work/test"

# From .pth to safetensors and back: no step, the same bytes.
expect_exit 0 "$LOCKSTEP" train --impl single --devices 1 --data synthetic:600 --steps 0 --load "$work/model.pth" \
  --save "$work/again.safetensors"
same_accuracy "$work/again.safetensors"
mkdir "$work/back"
expect_exit 0 "$LOCKSTEP" train --impl ddp --devices 2 --data synthetic:600 --steps 0 --load "$work/again.safetensors" \
  --save "$work/back/model.pth"
cmp "$work/model.pth" "$work/back/model.pth" || fail "parameters changed on the way through safetensors"

# Training goes on from loaded parameters, alike however many ranks read them.
for impl in "ddp --ranks processes" "ddp --ranks threads" mpi; do
  mkdir "$work/${impl##* }"
  # shellcheck disable=SC2086 # words
  expect_exit 0 "$LOCKSTEP" train --impl $impl --devices 2 --data synthetic:600 --steps 3 --load "$work/model.pth" \
    --save "$work/${impl##* }/on.pth"
done
for other in threads mpi; do
  cmp "$work/processes/on.pth" "$work/$other/on.pth" || fail "ranks start from different parameters: $other"
done

# What cannot be: one line, exit 2, nothing written.
expect_error 2 "'--load' is missing" "$LOCKSTEP" eval
expect_error 2 "none.pth: cannot be opened" "$LOCKSTEP" eval --load "$work/none.pth"
expect_error 2 "tensor 'fc.weight' of model seed-conv is missing; .*; a file of another network is read with that network's --model" \
  "$LOCKSTEP" eval --model seed-conv --load "$work/model.pth"
head -c 50000 "$work/model.pth" >"$work/cut.pth"
expect_error 2 "cut.pth: .*truncated" "$LOCKSTEP" train --impl mpi --devices 2 --load "$work/cut.pth" --save "$work/no.pth"
[ ! -e "$work/no.pth" ] || fail "a file was written after a refusal"
expect_error 2 "ends in .pth, .pt or .safetensors" "$LOCKSTEP" eval --load "$work/test"
expect_error 2 "give one of them" "$LOCKSTEP" train --load "$work/model.pth" --resume "$work/c.safetensors"
expect_error 2 "found parameters alone" "$LOCKSTEP" train --resume "$work/again.safetensors"
expect_error 2 "does not belong" "$LOCKSTEP" eval --load "$work/model.pth" --epochs 3

# PyTorch reads what is written here, and the reverse.
python=""
for candidate in python3 /usr/bin/python3; do # Debian's torch belongs to Debian's python
  if "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "SKIPPED(no python3-torch): exchange of files with PyTorch"
  exit 0
fi
"$python" - "$work" "$fashion" "$correct" <<'PYTHON'
import gzip, sys
import torch, torch.nn as nn, torch.nn.functional as F

work, data, expected = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2)).view(-1, 320)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def read(name, skip):
    return torch.frombuffer(bytearray(gzip.open(f"{data}/{name}").read()[skip:]), dtype=torch.uint8)


images = read("t10k-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255
labels = read("t10k-labels-idx1-ubyte.gz", 8).long()
state = torch.load(f"{work}/model.pth", weights_only=True)
model = Net()
model.load_state_dict(state)  # strict: names and shapes
with torch.no_grad():
    correct = int((model(images).argmax(1) == labels).sum())
if correct != expected:
    sys.exit(f"PyTorch counts {correct} right answers, lockstep {expected}")
torch.save(model.state_dict(), f"{work}/zip.pth")
torch.save(model.state_dict(), f"{work}/legacy.pth", _use_new_zipfile_serialization=False)
torch.save(nn.DataParallel(model).state_dict(), f"{work}/wrapped.pt")
torch.save(model.state_dict(), f"{work}/protocol4.pth", pickle_protocol=4)
torch.save({k: v.double() for k, v in state.items()}, f"{work}/double.pth")
torch.save(model, f"{work}/module.pth")
torch.save(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).state_dict(), f"{work}/optimizer.pth")
torch.save({"epoch": 3, "model_state_dict": state}, f"{work}/parts.pth")
PYTHON
for file in zip.pth legacy.pth wrapped.pt protocol4.pth double.pth; do
  same_accuracy "$work/$file"
done
expect_error 2 "a whole pickled module" "$LOCKSTEP" eval --load "$work/module.pth"
expect_error 2 "found an optimizer's" "$LOCKSTEP" eval --load "$work/optimizer.pth"
expect_error 2 "'model_state_dict' may be one" "$LOCKSTEP" eval --load "$work/parts.pth"
echo "exchanged with PyTorch: $correct of 10000 right on both sides"
