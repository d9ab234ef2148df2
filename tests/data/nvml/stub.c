/* A libnvidia-ml.so.1 that answers what an H200 was recorded to answer.

   Compiled by tests/device_stubs.py; the macros without a default come from h200_facts.json.
   While the file named by NVML_STUB_FAIL exists, the function named in it fails with
   GPU_IS_LOST, once per call. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef GPUS
#define GPUS 1
#endif
#ifndef MIG_INSTANCES
#define MIG_INSTANCES 0
#endif
#ifndef XID
#define XID 0
#endif
#ifndef THROTTLE
#define THROTTLE RECORDED_THROTTLE
#endif

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15, INSUFFICIENT_SIZE = 7 };

typedef struct { int index; int instance; } Handle;
static Handle gpus[8], instances[8];

static int failing(const char *name) {
    char wanted[128] = "";
    const char *path = getenv("NVML_STUB_FAIL");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return OK;
    if (!fgets(wanted, sizeof wanted, file)) wanted[0] = 0;
    fclose(file);
    return strcmp(wanted, name) == 0 ? LOST : OK;
}
#define GUARD() do { int failed = failing(__func__); if (failed) return failed; } while (0)
#define NOT_FOR_INSTANCES(handle) do { if ((handle)->instance) return NOT_SUPPORTED; } while (0)

int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case LOST: return "GPU is lost";
    case TIMEOUT: return "Timeout";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, DRIVER); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **handle) {
    gpus[index].index = index;
    *handle = &gpus[index];
    return OK;
}
int nvmlDeviceGetName(Handle *h, char *text, unsigned size) { snprintf(text, size, NAME); return OK; }
int nvmlDeviceGetUUID(Handle *h, char *text, unsigned size) {
    snprintf(text, size, "%s-00000000-0000-0000-0000-00000000000%d", h->instance ? "MIG" : "GPU",
             h->instance ? h->instance : h->index + 1);
    return OK;
}
int nvmlDeviceGetMigMode(Handle *h, unsigned *current, unsigned *pending) {
    *current = *pending = MIG_INSTANCES > 0;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Handle *h, unsigned *count) { *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle *h, unsigned slot, Handle **part) {
    if (slot >= MIG_INSTANCES) return NOT_FOUND;
    instances[slot].instance = slot + 1;
    *part = &instances[slot];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Handle *h, unsigned *id) { *id = h->instance + 6; return OK; }

int nvmlDeviceGetMemoryInfo(Handle *h, unsigned long long *total_free_used) {
    GUARD();
    total_free_used[0] = MEMORY_TOTAL;
    total_free_used[1] = MEMORY_FREE;
    total_free_used[2] = MEMORY_TOTAL - MEMORY_FREE;
    return OK;
}
int nvmlDeviceGetUtilizationRates(Handle *h, unsigned *gpu_memory) {
    GUARD(); NOT_FOR_INSTANCES(h);
    if (MIG_INSTANCES) return NOT_SUPPORTED;
    gpu_memory[0] = 63;
    gpu_memory[1] = 12;
    return OK;
}
int nvmlDeviceGetPowerUsage(Handle *h, unsigned *mw) { GUARD(); *mw = POWER_MW; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(Handle *h, unsigned long long *mj) { *mj = ENERGY_MJ; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(Handle *h, unsigned *mw) { *mw = POWER_LIMIT_MW; return OK; }
int nvmlDeviceGetTemperature(Handle *h, int sensor, unsigned *celsius) { *celsius = TEMPERATURE_C; return OK; }
int nvmlDeviceGetClockInfo(Handle *h, int clock, unsigned *mhz) {
    *mhz = clock == 1 ? CLOCK_SM : CLOCK_MEM;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle *h, unsigned long long *mask) {
    *mask = THROTTLE;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(Handle *h, int kind, int counter, unsigned long long *count) {
    *count = 0;
    return OK;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int type, code;
    union { double d; unsigned long long ull; } value;
} Field;
int nvmlDeviceGetFieldValues(Handle *h, int count, Field *fields) {
    static unsigned long long reads;
    for (int i = 0; i < count; i++) {
        fields[i].type = 3;
        fields[i].code = fields[i].field == 197 || fields[i].field == 198 ? OK : NOT_SUPPORTED;
        /* 1 MiB more at every look */
        fields[i].value.ull = (fields[i].field == 198 ? PCIE_RX : PCIE_TX) + (++reads << 20);
    }
    return OK;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Handle *h, unsigned *count, Process *processes) {
    const char *pid = getenv("NVML_STUB_PID");
    unsigned room = *count;
    *count = pid ? 2 : 0;
    if (!pid) return OK;
    if (room < 2) return INSUFFICIENT_SIZE;
    memset(processes, 0, 2 * sizeof *processes);
    processes[0].pid = atoi(pid);
    processes[0].used = 45267ull << 20;
    processes[1].pid = 1; /* somebody else's */
    processes[1].used = 1ull << 30;
    return OK;
}

typedef struct { Handle *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;
static int announced;
int nvmlDeviceGetSupportedEventTypes(Handle *h, unsigned long long *mask) { *mask = EVENT_TYPES; return OK; }
int nvmlEventSetCreate(void **set) { *set = &announced; return OK; }
int nvmlEventSetFree(void *set) { return OK; }
int nvmlDeviceRegisterEvents(Handle *h, unsigned long long mask, void *set) { return OK; }
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
    if (!XID || announced) return TIMEOUT;
    announced = 1;
    event->device = &gpus[0];
    event->type = 8;
    event->data = XID;
    event->gpu_instance = event->compute_instance = 0xFFFFFFFF;
    return OK;
}

typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { unsigned id; int code; double value; char *info[3]; } GpmMetric;
typedef struct { unsigned version, count; void *first, *second; GpmMetric metrics[1]; } GpmRequest;
int nvmlGpmQueryDeviceSupport(Handle *h, GpmSupport *support) { support->supported = 1; return OK; }
int nvmlGpmSampleAlloc(void **sample) { *sample = malloc(1); return OK; }
int nvmlGpmSampleFree(void *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(Handle *h, void *sample) { NOT_FOR_INSTANCES(h); return OK; }
int nvmlGpmMigSampleGet(Handle *h, unsigned instance, void *sample) { return OK; }
int nvmlGpmMetricsGet(GpmRequest *request) {
    static int reads;
    int first = reads++ == 0;
    for (unsigned i = 0; i < request->count; i++) {
        int dram = request->metrics[i].id == 10, tensor = request->metrics[i].id == 5;
        /* Recorded: DRAM_BW_UTIL was NaN in the first reading of every run. */
        request->metrics[i].value = dram && first ? NAN : 2.5 * request->metrics[i].id;
        request->metrics[i].code = tensor ? 2 : OK;
    }
    return OK;
}
