#!/usr/bin/env bash
# sbom.sh
# Writes a software bill of materials (CycloneDX) of each program: the crates that are in it, with versions and licences.
. "$(dirname "$0")/settings.sh"

cyclonedx=0.5.9
if [ "$("$tools/bin/cargo-cyclonedx" cyclonedx --version 2>/dev/null)" != "cargo-cyclonedx-cyclonedx $cyclonedx" ]; then
  progress() { crates "$1"; }
  slowly "cargo-cyclonedx" "$build/release-cyclonedx.log" \
    cargo install --locked --root "$tools" --version "$cyclonedx" cargo-cyclonedx
fi
for architecture in "${architectures[@]}"; do
  target=$(target_of "$architecture")
  for program in "${programs[@]}"; do
    directory=${program#remora-}
    "$tools/bin/cargo-cyclonedx" cyclonedx --manifest-path "$directory/Cargo.toml" --format json --spec-version 1.5 \
      --target "$target" --no-build-deps --override-filename "$program" >/dev/null 2>"$build/release-cyclonedx.log" ||
      fail "no bill of materials of $program: see $build/release-cyclonedx.log"
    # The path of the checkout is of no use to a reader, and a random number would differ each time.
    jq -S --arg here "file://$PWD" \
      'del(.serialNumber) | walk(if type == "string" then split($here) | join("file:///source") else . end)' \
      "$directory/$program.json" >"$release/$program-linux-$architecture.cdx.json"
    find operator sidecar e2e -name "$program.json" -newer "$tools/remora-sidecar.digest" -delete
  done
done
