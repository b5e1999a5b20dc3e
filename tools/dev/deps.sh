# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with the other parts of ./dev
# What must be there before a build: system packages, CMake, libtorch. Nothing is done, or asked, for what is there already.

# packages_of run|test, and what is wanted beside them where the archive has it
packages_of() {
  case $1 in
    run) echo build-essential ninja-build ccache cmake ca-certificates python3 python3-venv libgloo-dev libcli11-dev libyaml-cpp-dev \
      libfmt-dev nlohmann-json3-dev libcurl4-openssl-dev zlib1g-dev libssl-dev ;;
    test) echo libgtest-dev libgmock-dev clang-format clang-tidy shellcheck iproute2 ;;
    optional_run) echo dataset-fashion-mnist ;; # stands in when MNIST cannot be downloaded
    optional_test) echo chromium ;; # looks at pages; in Ubuntu's archive it is no package
  esac
}

# install_dependencies run [test]; `test` alone: only its packages.
install_dependencies() {
  mkdir -p "$cache" 2>/dev/null || fail 73 "cannot create $cache (set XDG_CACHE_HOME to a folder that can be written)"
  lock 9 "$cache/lock" "installing what is missing"
  local changed=
  install_packages "$@"
  if [ "$1" = run ]; then
    cmake_program >/dev/null || install_cmake
    install_libtorch
  fi
  exec 9>&-
  [ -n "$changed" ] || say "nothing to install"
}

missing_packages() {
  local installed
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
  local name
  for name in "$@"; do [[ $installed == *" installed:$name "* ]] || printf '%s\n' "$name"; done
}

install_packages() {
  local set name wanted missing extra needed=
  mapfile -t wanted < <(for set in "$@"; do packages_of "$set"; done | tr ' ' '\n')
  mapfile -t extra < <(for set in "$@"; do packages_of "optional_$set"; done | tr ' ' '\n')
  if ! command -v dpkg-query >/dev/null; then
    say "this is no Debian or Ubuntu: please see to the equivalents of these packages yourself: ${wanted[*]} ${extra[*]}"
    return
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  mapfile -t extra < <(missing_packages "${extra[@]}")
  if [ ${#missing[@]} -gt 0 ]; then
    needed=yes
    become_root "apt-get install ${missing[*]}"
    # An apt that was killed half way leaves dpkg to be completed first.
    if compgen -G '/var/lib/dpkg/updates/[0-9]*' >/dev/null; then as_root dpkg --configure -a </dev/null >"$log" 2>&1 || true; fi
    apt_get update >"$log" 2>&1 || true # a broken extra source must not stop us; if ours are broken, install says so
  elif [ ${#extra[@]} -gt 0 ] && ! can_become_root; then
    say "going on without ${extra[*]}, which this user may not install"
    return
  fi
  for name in "${extra[@]}"; do
    if apt-cache show "$name" >/dev/null 2>&1; then missing+=("$name"); else say "this archive has no $name: going on without"; fi
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  changed=yes
  say "installing system packages (a few minutes; log: $log): ${missing[*]}"
  if ! apt_get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    [ -z "$needed" ] || explain_apt_failure
    say "${missing[*]} could not be installed (see $log): going on without"
    return 0
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  [ ${#missing[@]} -eq 0 ] || fail 71 "still missing after the installation (see $log): ${missing[*]}"
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

explain_apt_failure() {
  local reason
  reason=$(grep -E '^(E|Err|dpkg): ?' "$log" | tail -n 3 || true)
  if grep -qE 'No space left|have enough free space' "$log"; then
    fail 73 "the disk is too full for the system packages. Free some space, then run the same command."$'\n'"$reason"
  elif grep -qE 'Could not resolve|Temporary failure|Could not connect|Unable to connect|Network is unreachable|Failed to fetch' "$log"; then
    fail 69 "the system packages could not be downloaded; is there a network? The same command goes on from here."$'\n'"$reason"
  elif grep -q 'Unable to locate package' "$log"; then
    fail 69 "this system's archive lacks packages, or its lists could not be downloaded."$'\n'"$reason"
  fi
  fail 71 "apt-get failed (see $log)."$'\n'"$reason"
}

# Without a question asked; makes as_root usable.
can_become_root() {
  if [ "$(id -u)" -eq 0 ]; then
    sudo_prefix=()
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo_prefix=(sudo)
  else
    return 1
  fi
}
# become_root COMMAND: the same, with a password asked for on a terminal, or says what an administrator should run.
become_root() {
  can_become_root && return
  if command -v sudo >/dev/null && [ -t 0 ] && sudo -v; then
    sudo_prefix=(sudo)
  else
    fail 77 "system packages are missing and this user may not install them. Ask an administrator to run:
  $1
then run the same command again."
  fi
}
as_root() { "${sudo_prefix[@]}" "$@"; }

# The cmake to use: the system's if it is new enough, else the one from PyPI in our own environment.
cmake_program() {
  local candidate
  for candidate in cmake "$cache/python/bin/cmake"; do
    if command -v "$candidate" >/dev/null &&
      version_at_least "$("$candidate" --version | sed -n '1s/[^0-9]*//p')" 3.25; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# A Python environment of our own, with a pip that can report where packages lie (22.04's cannot).
ensure_python() {
  [ ! -e "$cache/python/.ready" ] || return 0
  rm -rf "$cache/python"
  local said
  [ "$(df -P -k "$cache" | awk 'NR == 2 {print $4}')" -ge 102400 ] ||
    fail 73 "less than 100 MiB are free in $cache. Free some space, or set XDG_CACHE_HOME; then run the same command."
  if ! said=$({ python3 -m venv "$cache/python" && "$cache/python/bin/pip" install -q --upgrade 'pip>=24.1'; } 2>&1 </dev/null); then
    fail 69 "a Python environment with a recent pip could not be made; is there a network?"$'\n'"$(tail -n 3 <<<"$said")"
  fi
  touch "$cache/python/.ready"
}

install_cmake() {
  changed=yes
  ensure_python
  say "installing a newer CMake than the system's into $cache/python"
  local said
  said=$("$cache/python/bin/pip" install -q 'cmake>=3.25,<4' 2>&1 </dev/null) ||
    fail 69 "CMake 3.25 or newer could not be installed; is there a network?"$'\n'"$(tail -n 3 <<<"$said")"
}

install_libtorch() {
  local root cmake
  cmake=$(cmake_program)
  root=$("$cmake" -P cmake/TorchSearch.cmake) || exit 78
  [ -z "$root" ] || return 0
  changed=yes
  [ "$(uname -m)" = x86_64 ] ||
    fail 69 "the pinned libtorch is for x86-64 machines. Install PyTorch 2.11 for python3, or set DTORCH_TORCH_ROOT."
  ensure_python
  say "downloading libtorch (530 MB, once) into $cache"
  local version
  version=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' tools/dev/libtorch.txt)
  python3 tools/dev/fetch_libtorch.py "$cache/torch-$version" --pip "$cache/python/bin/pip"
}
