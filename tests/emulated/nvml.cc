// The part of NVIDIA's management library that `lockstep top` uses: one GPU, a quarter of whose memory is in use.
#include <cstdio>

extern "C" {

struct EmulatedMemory {
  unsigned long long total, free, used;
};
struct EmulatedUtilization {
  unsigned int gpu, memory;
};

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = nullptr;
  return index == 0 ? 0 : 2;
}
int nvmlDeviceGetName(void*, char* name, unsigned int size) {
  std::snprintf(name, size, "Emulated GPU");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, EmulatedMemory* memory) {
  *memory = {4ULL << 30, 3ULL << 30, 1ULL << 30};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, EmulatedUtilization* rates) {
  *rates = {75, 10};
  return 0;
}

}  // extern "C"
