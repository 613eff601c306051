/* A driver library with the few functions that a node report asks for.
   FAKE_NVML_GPUS: how many GPUs. FAKE_NVML_LOST: the index of one that answers nothing.
   FAKE_NVML_SILENT: the index of one that reports no utilisation. FAKE_NVML_NVLINKS: how many join
   the GPUs of a pair; FAKE_NVML_SWITCHED: how many join each GPU but the last to a switch. Every GPU has 16 GiB, of which
   (index + 1) GiB are used, and works at 10 * index per cent. FAKE_NVML_PID: the process that uses all of that
   but 1 MiB, which the parent of the caller does. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilisation_t;
typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
} pci_t;

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? atol(text) : otherwise;
}

static long index_of(void *device) { return (long)device - 1; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) { return error ? "fake error" : "success"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = (unsigned)number("FAKE_NVML_GPUS", 0);
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if (index >= (unsigned)number("FAKE_NVML_GPUS", 0)) return INVALID_ARGUMENT;
  if ((long)index == number("FAKE_NVML_LOST", -1)) return GPU_IS_LOST;
  *device = (void *)((long)index + 1);
  return OK;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  snprintf(name, length, "Fake %ld", index_of(device));
  return OK;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
  memory->total = 16ULL << 30;
  memory->used = (unsigned long long)(index_of(device) + 1) << 30;
  memory->free = memory->total - memory->used;
  return OK;
}

/* Pairs of GPUs are on a PCIe switch, fours on a processor. */
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, unsigned *level) {
  if (number("FAKE_NVML_SILENT", -1) >= 0) return NOT_SUPPORTED;
  long x = index_of(a), y = index_of(b);
  *level = x / 2 == y / 2 ? 10 : x / 4 == y / 4 ? 40 : 50;
  return OK;
}

static void pci_of(long index, pci_t *pci) { pci->domain = 0; pci->bus = (unsigned)index + 1; pci->device = 0; }

int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci) { pci_of(index_of(device), pci); return OK; }

static int is_switched(void *device) {
  return number("FAKE_NVML_SWITCHED", 0) && index_of(device) + 1 < number("FAKE_NVML_GPUS", 0);
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) {
  long links = number(is_switched(device) ? "FAKE_NVML_SWITCHED" : "FAKE_NVML_NVLINKS", 0);
  if (!links) return NOT_SUPPORTED;
  *active = (long)link < links;
  return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *type) {
  (void)link;
  *type = is_switched(device) ? 2 : 0;
  return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci_t *pci) {
  (void)link;
  pci_of(is_switched(device) ? 1000 : index_of(device) ^ 1, pci);
  return OK;
}

typedef struct { unsigned pid; unsigned long long used; unsigned instance, part; } process_t;

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *found) {
  unsigned room = *count, pid = (unsigned)number("FAKE_NVML_PID", 0);
  if (index_of(device) == number("FAKE_NVML_SILENT", -1)) return NOT_SUPPORTED;
  *count = pid ? 2 : 0;
  if (room < *count) return INSUFFICIENT_SIZE;
  if (!pid) return OK;
  found[0] = (process_t){(unsigned)getppid(), 1ULL << 20, 0, 0};
  found[1] = (process_t){pid, ((unsigned long long)(index_of(device) + 1) << 30) - (1ULL << 20), 0, 0};
  return OK;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_t *found) {
  (void)device, (void)found;
  *count = 0;
  return OK;
}

int nvmlDeviceGetUtilizationRates(void *device, utilisation_t *utilisation) {
  if (index_of(device) == number("FAKE_NVML_SILENT", -1)) return NOT_SUPPORTED;
  utilisation->gpu = (unsigned)(10 * index_of(device));
  utilisation->memory = 0;
  return OK;
}
