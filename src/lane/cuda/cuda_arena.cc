#include "lane/cuda/cuda_arena.h"

#include "lane/cuda/cuda_stream.h"

namespace lockstep {
namespace {

thread_local int runs_of_thread = 0;

}  // namespace

CudaArena::CudaArena(CudaStream& stream) : stream_(stream) {
  const std::lock_guard lock(stream.arenas_mutex_);
  at_ = stream.arenas_.insert(stream.arenas_.end(), this);
}

CudaArena::~CudaArena() {
  const std::lock_guard lock(stream_.arenas_mutex_);
  stream_.arenas_.erase(at_);
}

CudaArena::Run::Run(CudaArena& arena, int64_t bytes) : arena_(arena) {
  if (bytes > 0) {
    {
      CudaStream& stream = arena.stream_;
      const std::lock_guard lock(stream.arenas_mutex_);
      arena.running_ = true;
      arena.kept_ |= runs_of_thread > 0;
      stream.arenas_.splice(stream.arenas_.end(), stream.arenas_, arena.at_);
    }
    if (!arena.memory_) arena.memory_ = arena.stream_.allocate(bytes, "the arena of a program");
    data_ = arena.memory_->data();
  }
  ++runs_of_thread;
}

CudaArena::Run::~Run() {
  --runs_of_thread;
  const std::lock_guard lock(arena_.stream_.arenas_mutex_);
  arena_.running_ = false;
}

}  // namespace lockstep
