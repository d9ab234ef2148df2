# Environment of the GPU runs: . scripts/gpu/environment.sh
# What `pack.sh` leaves out (flashinfer, deep_gemm) must not be asked for; one host, loopback only.
export SITE=${SITE:-/tmp/rlinsight/site}
[ -d "$SITE/rlinsight" ] && export PYTHONPATH="$SITE" \
  VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_USE_DEEP_GEMM=0
unset PYTHONDONTWRITEBYTECODE   # eight processes one after the other would each compile torch anew
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 RAY_memory_monitor_refresh_ms=0
export VLLM_HOST_IP=127.0.0.1 NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo
# NVLink multicast stays off: on a shared host it can take GPUs away from others.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export NCCL_CUMEM_ENABLE=0
export RLINSIGHT_NODE=${RLINSIGHT_NODE:-node0}
