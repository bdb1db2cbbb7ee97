#!/usr/bin/env bash
# `make gpu` on a rented machine that has PyTorch and no network: docs/gpu.md.
#
# bash benchmarks/lease.sh collect PACKAGES         here; PACKAGES is the output of `pip freeze` there
# bash benchmarks/lease.sh run [FOLDER] [OPTIONS]   there; the report goes to FOLDER, or to $OUT
set -euo pipefail
cd "$(dirname "$0")/.."
text=wheels/tiny_shakespeare.txt

# The packages of .venv that the other machine lacks, each with its version.
missing() {
    .venv/bin/python -m pip freeze | awk -F'[ =@]+' '
        { name = tolower($1); gsub(/[-_.]+/, "-", name) }
        NR == FNR { there[name]; next }
        /==/ && !(name in there)' "$1" -
}

collect() {
    rm -rf wheels
    mkdir wheels
    platforms=(--platform manylinux1_x86_64 --platform manylinux2014_x86_64)
    for glibc in {17..39}; do
        platforms+=(--platform "manylinux_2_${glibc}_x86_64")
    done
    for package in $(missing "$1"); do
        .venv/bin/python -m pip download --quiet --no-deps --dest wheels --only-binary=:all: \
            --python-version "${PYTHON_VERSION:-3.12}" "${platforms[@]}" "$package" ||
            .venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir wheels "$package"
    done
    cp "${FOLIO_TINY_SHAKESPEARE:-data/cache/tiny_shakespeare.txt}" $text
    du -sh wheels
}

run() {
    out=${OUT:-}
    if [[ ${1:-} == [!-]* ]]; then
        out=$1
        shift
    fi
    : "${out:?name a folder for the report}"
    site=$PWD/logs/site-packages
    mkdir -p "$out" "$site"
    find wheels -name '*.whl' -exec python3 -m pip install --quiet --no-index --no-deps \
        --upgrade --target "$site" {} +
    export PYTHONPATH=$site PYTHONUNBUFFERED=1 FOLIO_TINY_SHAKESPEARE=$PWD/$text
    python3 -m benchmarks.gpu --copy-to "$out" "$@" 2>&1 | tee "$out/gpu.log"
}

case ${1:-} in
collect | run) "$@" ;;
*) sed -n '2,5p' "$0" && exit 2 ;;
esac
