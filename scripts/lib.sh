# Shared by the scripts: source it first. Works from any folder.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
  printf '== %s\n' "$*"
}

# die CODE MESSAGE...: one line on stderr; 2 is bad input or a missing requirement, as in the program.
die() {
  local code=$1
  shift
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit "$code"
}

# packages_of USE...: names of the packages for these uses (packages.txt).
packages_of() {
  local use
  for use in "$@"; do
    awk -v use="$use" '$1 == use { print $2 }' "$root/scripts/packages.txt"
  done
}

# install_packages USE...: installs what is missing, as root or with sudo; without either prints the line to run.
install_packages() {
  command -v dpkg-query >/dev/null ||
    die 2 "this system has no dpkg: expected Debian 12; install the equivalents of scripts/packages.txt by hand, then cmake --preset vgpu"
  local package missing=()
  for package in $(packages_of "$@"); do
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      missing+=("$package")
    fi
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all are installed"
    return
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
    # sudo may ask for a password only where somebody can type it.
    if ! command -v sudo >/dev/null || { ! sudo -n true 2>/dev/null && ! [ -t 0 ]; }; then
      die 2 "packages are missing, and this is neither root nor has sudo; run: apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  say "packages: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q=2 ||
    die 2 "apt-get update failed; check the network and /etc/apt/sources.list"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q=2 -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die 2 "apt-get install failed; run it to see why: apt-get install -y --no-install-recommends ${missing[*]}"
}

# build_preset PRESET [TARGET...]: configures and builds under build/PRESET; prints the build's output only when it fails.
build_preset() {
  local preset=$1
  shift
  build_folder "build/$preset" --preset "$preset" -- "$@"
}

# build_folder FOLDER CMAKE_ARGUMENT... -- [TARGET...]: the same for any configuration.
build_folder() {
  local folder=$1 arguments=() log
  shift
  while [ "$1" != -- ]; do
    arguments+=("$1")
    shift
  done
  shift
  log=$root/$folder.log
  mkdir -p "$(dirname "$log")"
  if ! (cd "$root" && cmake "${arguments[@]}" && cmake --build "$folder" -j "$(nproc)" ${1:+--target "$@"}) >"$log" 2>&1; then
    grep -E -A20 'CMake Error|FAILED|error:|warning:' "$log" | head -60 >&2 || true
    tail -5 "$log" >&2
    printf '%s: building %s failed; the whole output is in %s\n' "$(basename "$0")" "$folder" "$log" >&2
    return 1
  fi
}

# fetch_checked MD5 FILE URL...: downloads FILE from the first URL that gives the right contents. It appears under its name only
# when complete and right.
fetch_checked() {
  local md5=$1 file=$2 url part reasons=""
  shift 2
  part=$(mktemp "$file.XXXXXX")
  for url in "$@"; do
    if ! curl -fsSL --connect-timeout 10 --max-time 300 --retry 1 -o "$part" "$url" 2>"$part.error"; then
      reasons+="; $url: $(head -1 "$part.error")"
    elif [ "$(md5sum <"$part" | cut -d ' ' -f 1)" != "$md5" ]; then
      reasons+="; $url: md5 $(md5sum <"$part" | cut -d ' ' -f 1), expected $md5"
    else
      rm -f "$part.error"
      chmod 644 "$part"
      mv "$part" "$file"
      return 0
    fi
  done
  rm -f "$part" "$part.error"
  printf '%s: cannot download %s%s\n' "$(basename "$0")" "$(basename "$file")" "$reasons" >&2
  return 1
}
