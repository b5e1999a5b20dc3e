# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with the other parts of ./dev
# Configuring, building, testing.

preset=release
rest=()

# take_preset ARGS...: sets preset, and rest to the other arguments.
take_preset() {
  while [ $# -gt 0 ]; do
    case $1 in
      --preset=*) preset=${1#*=} ;;
      --preset)
        [ $# -ge 2 ] || fail 64 "--preset wants a name: release, debug, asan or tsan"
        preset=$2
        shift
        ;;
      *) rest+=("$1") ;;
    esac
    shift
  done
  case $preset in release | debug | asan | tsan) ;; *) fail 64 "there is no preset '$preset': release, debug, asan or tsan" ;; esac
}

take_prefix() {
  prefix=/usr/local
  case "$#:${1:-}" in
    0:) ;;
    1:--prefix=*) prefix=${1#*=} ;;
    2:--prefix) prefix=$2 ;;
    *) fail 64 "install takes --prefix DIR, got: $*" ;;
  esac
}

build_folder() { if [ "$preset" = release ]; then echo build; else echo "build-$preset"; fi; }

cached() { sed -n "s/^$1:[A-Z]*=//p" "$(build_folder)/CMakeCache.txt"; }

# configure [tests]: once; ninja does it again by itself when a CMake file changes. Tests are never switched off again.
configure() {
  local folder want=${1:-} torch
  folder=$(build_folder)
  mkdir -p "$folder"
  lock 8 "$folder/.dev-lock" "building in $folder"
  if [ -e "$folder/build.ninja" ]; then
    torch=$(cached DTORCH_TORCH_FOUND)
    if { [ -z "$want" ] || [ "$(cached DTORCH_TESTS)" = ON ]; } && { [ -z "$torch" ] || [ -e "$torch" ]; }; then return; fi
  fi
  say "configuring $folder"
  local said
  if ! said=$("$(cmake_program)" --preset "$preset" -DDTORCH_TESTS="$([ -n "$want" ] && echo ON || echo OFF)" 2>&1 </dev/null); then
    printf '%s\n' "$said" >&2
    fail 70 "the configuration of $folder failed"
  fi
}

# build [TARGET...]: a file with libtorch takes up to 2 GB to compile, so memory bounds the parallelism too.
build() {
  local folder jobs memory
  folder=$(build_folder)
  jobs=$(nproc)
  memory=$(awk '/^MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo)
  [ "$memory" -ge "$jobs" ] || jobs=$((memory > 1 ? memory : 1))
  [ -e "$folder/.ninja_log" ] || say "building in $folder: some minutes the first time"
  local quiet=()
  [ -t 1 ] || quiet=(--quiet) # on a terminal ninja shows how far it is
  ninja "${quiet[@]}" -C "$folder" -j "$jobs" "$@" </dev/null 8>&- || fail 70 "the build in $folder failed"
  exec 8>&-
}

run_tests() {
  local folder
  folder=$(build_folder)
  exec "$(dirname "$(command -v "$(cmake_program)")")/ctest" --test-dir "$folder" --output-on-failure -j 2 "$@" </dev/null
}

run_measurements() {
  local program
  for program in tests/perf/*.py; do
    [ -e "$program" ] || fail 69 "there are no measurements in tests/perf"
    DTORCH=$PWD/build/dtorch DTORCH_SHARED=${DTORCH_SHARED:-$PWD/../shared} python3 "$program" "$@"
  done
}
