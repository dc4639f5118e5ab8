#!/bin/sh
# All 99 published points, and the tables of ours beside those wanted: reproduce.sh DATASET DIR [--dry-run]
# DATASET is the folder "dataset" of github.com/BFTrainer/Replayer. Interrupted, the same command goes on where it was.
# docs/reproduce.md says what comes out.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dataset=$(cd "${1:?give the folder of the published files}" && pwd)
mkdir -p "${2:?give a folder for the results}"
dry=${3:-}
cd "$2"
cp "$here"/*.toml .

[ -f summit.npz ] || bftrain import "$dataset/ndstat-10sdn6-evt.tar.gz" -o summit.npz
tasks() {
    [ -f "$1.toml" ] || bftrain tasks import "$dataset/$2-Jbnd-$3.pkl" "$dataset/$2-JNPs-$3.pkl" -o "$1.toml"
}
tasks hpo hps-shufflenet 1000J
tasks nas-throughput ImageNet-imgps 1001J
tasks nas-speedup ImageNet-spdup 1001J

for name in t-fwd p-jmax rescale-cost heuristic; do
    # The points of p-jmax are among those of heuristic: what is done is not done again
    if [ $name = heuristic ] && [ ! -e heuristic ] && [ -f p-jmax/points.jsonl ]; then
        mkdir heuristic
        cp p-jmax/points.jsonl heuristic/
    fi
    bftrain sweep $name.toml -o $name $dry
done
[ -z "$dry" ] || exit 0
python "$here/../../docs/scripts/reproduce_tables.py" . > tables.md
python "$here/../../docs/scripts/published_tables.py" summit.npz hpo.toml > published.txt
cat tables.md published.txt
