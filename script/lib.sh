# Shared by the scripts in this folder: where we are, how to say things, how to get a package.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs Debian packages that are missing; the lists are fetched once per run.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return
  say "installing ${missing[*]}"
  if [ -z "${PACKAGE_LISTS_FETCHED:-}" ]; then
    as_root apt-get update -qq
    PACKAGE_LISTS_FETCHED=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
}

have() { command -v "$1" >/dev/null 2>&1; }
