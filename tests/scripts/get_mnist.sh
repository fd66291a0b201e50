#!/usr/bin/env bash
# scripts/get-mnist.sh and its download: right files appear whole under their name, wrong ones leave nothing behind.
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"

mkdir "$work/mirror" "$work/data"
echo "not MNIST" >"$work/mirror/train-images-idx3-ubyte.gz"

# A mirror with wrong contents, and one that is not there: exit 2, one line that names both, an empty folder.
LOCKSTEP_MNIST_MIRRORS="file://$work/mirror file://$work/nowhere" \
  expect_error 2 'train-images.*md5 [0-9a-f]{32}, expected f68b3c2dcbeaaa9fbdd348bbdeb94873.*nowhere' \
  "$LOCKSTEP_SOURCE/scripts/get-mnist.sh" "$work/data"
[ -z "$(ls -A "$work/data")" ] || fail "left behind: $(ls -A "$work/data")"

# The folder cannot be made.
expect_error 2 'cannot make the folder' "$LOCKSTEP_SOURCE/scripts/get-mnist.sh" "$work/mirror/train-images-idx3-ubyte.gz/x"

# The download itself: the second mirror is right.
mkdir "$work/right"
echo "right" >"$work/right/file"
md5=$(md5sum <"$work/right/file" | cut -d ' ' -f 1)
echo "wrong" >"$work/mirror/file"
bash -c '. "$1/scripts/lib.sh"; fetch_checked "$2" "$3/data/file" "file://$3/mirror/file" "file://$3/right/file"' \
  fetch "$LOCKSTEP_SOURCE" "$md5" "$work" || fail "the right mirror was not taken"
cmp "$work/right/file" "$work/data/file"
[ "$(ls -A "$work/data")" = file ] || fail "left behind: $(ls -A "$work/data")"
