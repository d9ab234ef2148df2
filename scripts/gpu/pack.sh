#!/bin/sh
# Pack what a GPU machine without a package registry lacks, in parts of at most 64 MB:
#     sh scripts/gpu/pack.sh DEST       writes DEST/1 DEST/2 DEST/3
# Take them to the machine and run `sh scripts/gpu/unpack.sh DEST/*/*` there. Needs uv, binutils,
# unzip, xz and a $PYTHON with torch (`make install` has one: PYTHON=.venv/bin/python); about ten
# minutes on two cores. Made for Python 3.12, CUDA 13, one Hopper GPU or several.
set -e
here=$(cd "$(dirname "$0")" && pwd)
dest=$1
site=$dest/site
rm -rf "$site"
mkdir -p "$dest/1" "$dest/2" "$dest/3"
target="--python-version 3.12 --python-platform x86_64-manylinux_2_39"
# shellcheck disable=SC2086
uv pip install -q --no-deps $target --target "$site" -r "$here/requirements.txt"
uv build -q --wheel --out-dir "$dest/wheel" "$here/../.."
uv pip install -q --no-deps $target --target "$site" "$dest"/wheel/rlinsight-*.whl
# flash-attn without its extension, which takes hours to compile: verl's log-probabilities want its
# Triton kernels, and its modules want that the extension can be imported.
FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE FLASH_ATTENTION_FORCE_BUILD=TRUE "${PYTHON:-python3}" -m pip \
  wheel -q --no-deps --no-build-isolation --wheel-dir "$dest/wheel" flash-attn==2.8.3.post2
unzip -q "$dest"/wheel/flash_attn-*.whl -d "$site"
echo '"""Not compiled here."""' > "$site/flash_attn_2_cuda.py"
cd "$site"

# What a text model on Hopper does not need.
rm -rf bin tests ray/jars ray/rllib ray/dashboard/client pycountry/locales \
  vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so vllm/vllm-rs vllm/third_party/fmha_sm100 \
  vllm/third_party/deep_gemm/include vllm/third_party/deep_gemm/_C.cpython-3[^2]* \
  vllm/third_party/deep_gemm/_C.cpython-31[^2]* \
  xgrammar/lib/*.a xgrammar/include mistral_common/data/*.model* mistral_common/data/*.json
find . -name __pycache__ -prune -exec rm -rf {} +
find . -name '*.js.map' -delete
for library in _C_stable_libtorch _moe_C_stable_libtorch _flashmla_C _qutlass_C; do
  python3 "$here/prune_fatbins.py" "vllm/$library.abi3.so"
done
strip --strip-unneeded ray/core/src/ray/gcs/gcs_server ray/core/src/ray/raylet/raylet || true
find ray cryptography tokenizers llguidance pydantic_core xgrammar _polars_runtime_32 \
  -name '*.so' -exec strip --strip-unneeded {} + || true

pack() { out=$1; shift; tar cf - "$@" | xz -9 > "$dest/$out.tar.xz"; }
pack 1/engine vllm/*.so vllm/vllm_flash_attn/*.so &
pack 1/ray ray ray-*.dist-info
pack 3/analysis _polars_runtime_32 polars rlinsight rlinsight-*.dist-info
pack 2/python --exclude='vllm/*.so' --exclude='vllm/vllm_flash_attn/*.so' --exclude=./ray \
  --exclude='./ray-*.dist-info' --exclude=./_polars_runtime_32 --exclude=./polars \
  --exclude=./rlinsight --exclude='./rlinsight-*.dist-info' .
wait
ls -l "$dest"/[123]
