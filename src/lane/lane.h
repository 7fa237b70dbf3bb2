// Lane: what executes the programs of this process: its cores, a share of them, or one GPU. Work runs in the order in
// which it was enqueued. The lanes of plan/ (CpuLane, CudaLane) implement this interface; everything above plan/ knows
// only it. docs/notes/new-backend.md explains how to write another one.
//
// Safe from any thread, but one program at a time: hold Lanes::run_mutex().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lane/buffer.h"

namespace lockstep {

class Comm;
struct Program;

struct LaneInfo {
  std::string platform;                   // "cpu", "cuda"
  std::string name;                       // of the hardware: "NVIDIA H200"
  MemorySpace space = MemorySpace::host;  // of the operands and results of its programs
  bool asynchronous = false;              // calls return when the work is enqueued; only download() and wait() block
  // A scan of a small program can be a single launch: several steps as one program cost less than one by one.
  bool fuses_scans = false;
};

struct PlanOptions {
  // Inputs that the plan may overwrite; empty: none.
  std::vector<bool> donated = {};
  // Returns the group of lanes that differ along these axes of the grid, for memory of this lane. Empty: the program
  // runs on one lane.
  std::function<Comm*(const std::string& axes)> comm = {};
};

// A program that was compiled for a lane. Used by one thread at a time. The lane must outlive it.
class LanePlan {
 public:
  LanePlan() = default;
  virtual ~LanePlan() = default;
  LanePlan(const LanePlan&) = delete;
  LanePlan& operator=(const LanePlan&) = delete;

  // Runs the program, or enqueues it if the lane is asynchronous. `in` and `out` are dense row-major arrays in memory
  // of the lane, in the order of the program's inputs and outputs, aligned to 64 bytes; those of less than 16 bytes to
  // the size of their elements.
  virtual void run(const void* const* in, void* const* out) = 0;
  // The donated input that output i overwrites, or -1. The caller passes the same memory for both.
  virtual int donated_input(size_t output) const = 0;

  // Starts to compile kernels on other threads. A later run() waits for them.
  virtual void compile_in_background() const {}
  // Bytes of memory that the plan needs besides inputs and outputs.
  virtual int64_t arena_bytes() const = 0;
  virtual size_t instructions() const = 0;
  // One line per instruction: the op, and the types and memory of operands and results.
  virtual std::string describe() const = 0;
  // How the lane executes the program: on a GPU kernels, phases and tasks; otherwise describe().
  virtual std::string schedule() const { return describe(); }
};

// A copy of a buffer to the host that has been started. The lane continues with other work. Belongs to one thread.
class Readback {
 public:
  Readback() = default;
  virtual ~Readback() = default;
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;

  // Returns them in host memory. Waits for the copy, but not for work that was enqueued after it. Throws like
  // Lane::wait(). REQUIRES: the first call.
  virtual BufferPtr wait() = 0;
};

class Lane {
 public:
  Lane() = default;
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  virtual const LaneInfo& info() const = 0;

  // Memory for operands and results. Throws OutOfMemory with the size and the purpose.
  virtual BufferPtr allocate(int64_t bytes, const char* purpose = "an array") = 0;
  // Copies within memory of this lane, in order.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  // Copies from host memory, which may be reused when the call returns.
  virtual void copy_from_host(void* to, const void* from, int64_t bytes) = 0;
  // Copies to host memory. Waits for all work that was enqueued before. Throws like wait().
  virtual void copy_to_host(void* to, const void* from, int64_t bytes) = 0;
  // Starts to copy a buffer of this lane to the host. REQUIRES: nothing but enqueued work writes to it before wait().
  virtual std::unique_ptr<Readback> read_back(const BufferPtr& buffer) = 0;
  // Waits for all enqueued work, with a deadline. Throws the cause if some of it failed.
  virtual void wait() = 0;

  // The plan does not refer to `program` later. REQUIRES: `program` came from lower().
  virtual std::unique_ptr<LanePlan> compile(const Program& program, const PlanOptions& options) = 0;

  // Bytes of its memory that are in use. Lanes whose programs use host memory share that of the process.
  virtual int64_t memory_in_use() const;

  // The Comm for memory of this lane, on top of a Comm of the host; not null. Called only if that memory is not the
  // host's. A collective call: all lanes of the group make it.
  virtual std::shared_ptr<Comm> device_comm(Comm& host) = 0;

  // Whether programs of this lane can use the buffer.
  bool can_use(const Buffer& buffer) const {
    return (buffer.space() == MemorySpace::device) == (info().space == MemorySpace::device);
  }
  // The contents of a host buffer for programs of this lane: the buffer itself if they can use it, else a copy.
  BufferPtr upload(const BufferPtr& host);
  // The contents of a buffer of this lane in host memory: the buffer itself if it is there, else a copy.
  BufferPtr download(const BufferPtr& buffer);
  // A copy of some bytes of a buffer of this lane.
  BufferPtr copy_of(const Buffer& buffer, int64_t begin, int64_t bytes);
};

// The number of lanes of the runtime in this process: one per GPU (hardware/gpu_lanes.h), or RuntimeOptions::cpu_lanes.
// Fixed by the first call. Throws like platform(), and if the option is invalid.
int64_t local_lane_count();

}  // namespace lockstep
