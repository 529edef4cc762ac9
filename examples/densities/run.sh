#!/bin/sh
# Study one city at three densities: a departure every 4, 2 and 1 seconds.
set -e
here=$(dirname "$0")
for density in 4 2 1; do
    testbed run "$here/study.yaml" --out "${1:-results}/density-$density" \
        --set name="density-$density" --set mobility.density="$density"
done
