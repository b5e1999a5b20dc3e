# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with the other parts of ./dev
# Parts that the other files of ./dev share. Exit codes are those of dtorch: 64 usage, 69 no network, 73 full disk, 77 not allowed.

cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/dtorch
log=$cache/dev.log

say() { printf 'dev: %s\n' "$*" >&2; }

fail() {
  local code=$1
  shift
  printf 'dev: error: %s\n' "$*" >&2
  exit "$code"
}

# lock FD FILE WHAT: holds FILE until this process closes FD or ends, so that two calls do not undo each other's work.
lock() {
  eval "exec $1>\"\$2\"" || fail 73 "cannot write $2"
  if ! flock -n "$1"; then
    say "waiting for another ./dev that is $3"
    flock -w 3600 "$1" || fail 71 "another ./dev has been $3 for an hour ($2 is locked)"
  fi
}

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
