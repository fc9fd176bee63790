#!/usr/bin/env bash
# Says which crates are built in several versions, and fails where deny.toml does not say why one of them stays. It asks
# cargo alone, so it runs where cargo-deny is not installed. `cargo tree -d -i NAME@VERSION` shows who wants a version.
set -euo pipefail
cd "$(dirname "$0")/.."

several=$(cargo tree --workspace --locked --all-features --duplicates --edges normal,build,dev \
  --target x86_64-unknown-linux-gnu --depth 0 --prefix none | awk 'NF { sub(/^v/, "", $2); print $1 "@" $2 }' | sort -u)
failed=0
for name in $(cut -d @ -f 1 <<<"$several" | sort | uniq -d); do
  # All versions but the newest have a reason.
  for version in $(grep "^$name@" <<<"$several" | sort -V | head -n -1); do
    grep -qF "crate = \"$version\"" deny.toml || {
      echo "$version is built beside a newer version, and deny.toml gives no reason"
      failed=1
    }
  done
done
for listed in $(sed -n 's/.*{ crate = "\([^"]*@[^"]*\)".*/\1/p' deny.toml); do
  grep -qxF "$listed" <<<"$several" || {
    echo "$listed is not built twice any more: remove it from deny.toml"
    failed=1
  }
done
[ $failed != 0 ] || echo "crates in several versions: $(cut -d @ -f 1 <<<"$several" | sort | uniq -d | xargs), each with its reason"
exit $failed
