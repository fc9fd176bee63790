#!/usr/bin/env bash
# Builds every package of a release into a folder, and starts what is in each.
#
#   crates     `cargo publish --dry-run` of all crates: each builds from its own package
#   static     an archive with a static binary (musl): any Linux, no GPU, since it can load no driver
#   native     an archive with a binary that loads CUDA where it is installed; the glibc of this system or newer
#   debian     a Debian package of the native binary, with manual pages and completions
#   wheels     the Python package, and the command as a wheel
#   container  an image with the static binary, where a container engine runs
#   parts      a list of all crates inside, as CycloneDX
#
# A package whose tools are missing is named with the reason, and the script ends with 3.
# Arguments: OUT [PACKAGE...]; all packages without a name.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,15s/^# \?//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
mkdir -p "$1" && out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- crates static native debian wheels container parts
target=${CARGO_TARGET_DIR:-$PWD/target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
musl=x86_64-unknown-linux-musl
missing=0

skip() { # PACKAGE REASON
  echo "not built: $1: $2" >&2
  missing=1
}
tool() { # CRATE VERSION: a command from crates.io, beside the build's files
  [ -x "$target/tools/bin/$1" ] || cargo install --quiet --locked --root "$target/tools" "$1@$2"
}
# What a package's command must be able to do wherever it was unpacked.
started() { # COMMAND...
  FULCRUM_HOME=$(mktemp -d) "$@" --version | grep -qx "fulcrum $version.*"
  FULCRUM_HOME=$(mktemp -d) "$@" advise --machine "RTX 4090, i7-14700K, 64 GB" --model llama-3.1-70b | grep -q "tok/s"
}
archived() { # NAME BINARY: an archive with the command, its manual pages, completions and licences
  local name=fulcrum-$version-$1 folder
  folder=$(mktemp -d)/$name
  mkdir -p "$folder/man" "$folder/completions"
  cp "$2" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$folder"
  shared_files "$2" "$folder/man" "$folder/completions"
  tar -C "${folder%/*}" -czf "$out/$name.tar.gz" "$name"
  rm -r "$folder"
  mkdir -p "$folder" && tar -C "$folder" -xzf "$out/$name.tar.gz"
  started "$folder/$name/fulcrum"
  echo "$name.tar.gz"
}
shared_files() { # BINARY MAN COMPLETIONS
  "$1" manual "$2" > /dev/null
  "$1" completions bash > "$3/fulcrum"
  "$1" completions zsh > "$3/_fulcrum"
  "$1" completions fish > "$3/fulcrum.fish"
}
native() { cargo build --quiet --release --locked --bin fulcrum; }
static() {
  if ! command -v musl-gcc > /dev/null; then
    skip "$1" "musl-gcc is not installed (Debian: musl-tools)"
    return 1
  fi
  rustup target add "$musl" > /dev/null 2>&1 || { skip "$1" "rustup cannot add $musl"; return 1; }
  cargo build --quiet --release --locked --target "$musl" --bin fulcrum
}

for package in "$@"; do
  echo "== $package"
  case $package in
    crates)
      # Packages of one version look alike to cargo, so that nothing of an earlier build may lie there.
      rm -rf "$target/crates"
      CARGO_TARGET_DIR=$target/crates cargo publish --quiet --workspace --dry-run --locked --allow-dirty --exclude xtask
      rm -rf "$target/crates"
      ;;
    native) native && archived x86_64-linux-gnu "$target/release/fulcrum" ;;
    static)
      if static static; then
        binary=$target/$musl/release/fulcrum
        ! ldd "$binary" 2> /dev/null | grep -q "=>" || { echo "$binary loads libraries" >&2; exit 1; }
        archived x86_64-linux-musl "$binary"
      fi
      ;;
    debian)
      command -v dpkg-deb > /dev/null || { skip debian "dpkg-deb is not installed"; continue; }
      native
      tool cargo-deb 3.8.0
      rm -rf "$target/package-files" && mkdir -p "$target/package-files/man" "$target/package-files/completions"
      shared_files "$target/release/fulcrum" "$target/package-files/man" "$target/package-files/completions"
      gzip -9n "$target/package-files/man"/*
      "$target/tools/bin/cargo-deb" --quiet --no-build -p fulcrum-cli -o "$out"
      unpacked=$(mktemp -d)
      dpkg-deb --extract "$(ls -t "$out"/fulcrum_*.deb | head -n 1)" "$unpacked"
      started "$unpacked/usr/bin/fulcrum"
      ;;
    wheels)
      if ! python3 -m venv "$target/venv-packages" || ! "$target/venv-packages/bin/pip" install --quiet "maturin>=1.9,<2"; then
        skip wheels "Python or its package index is not here"
        continue
      fi
      for folder in python python/cli; do
        (cd "$folder" && CARGO_TARGET_DIR=$target "$target/venv-packages/bin/maturin" build --quiet --release --locked --out "$out")
      done
      "$target/venv-packages/bin/pip" install --quiet --force-reinstall "$out"/fulcrum-"$version"-*.whl "$out"/fulcrum_cli-"$version"-*.whl
      started "$target/venv-packages/bin/fulcrum"
      "$target/venv-packages/bin/python" -c "import fulcrum; assert fulcrum.advise" 2> /dev/null || "$target/venv-packages/bin/python" -c "import fulcrum; fulcrum.plan"
      ;;
    container)
      engine=$(command -v docker || command -v podman || true)
      if [ -z "$engine" ] || ! "$engine" info > /dev/null 2>&1; then
        skip container "no container engine runs here"
      elif static container; then
        cp "$target/$musl/release/fulcrum" "$out/fulcrum"
        "$engine" build --quiet --tag "fulcrum:$version" --file Containerfile "$out"
        rm "$out/fulcrum"
        started "$engine" run --rm "fulcrum:$version"
      fi
      ;;
    parts)
      tool cargo-cyclonedx 0.5.9
      (cd cli && "$target/tools/bin/cargo-cyclonedx" cyclonedx --quiet --format json --override-filename parts)
      mv cli/parts.json "$out/fulcrum-$version.cdx.json"
      find . -name parts.json -not -path "./target/*" -delete
      python3 -c 'import json,sys; parts=json.load(open(sys.argv[1]))["components"]; assert len(parts) > 100; print(len(parts), "crates")' "$out/fulcrum-$version.cdx.json"
      ;;
    *) echo "unknown package $package" >&2; exit 2 ;;
  esac
done
(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | sort | xargs -r sha256sum > SHA256SUMS && cat SHA256SUMS)
exit $((missing * 3))
