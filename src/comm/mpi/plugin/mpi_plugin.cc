// liblockstep_mpi.so: MpiFunctions by calls of the MPI library that this plug-in is linked with. No exception and no
// C++ object crosses its border. Thread safety: as the MPI library.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/mpi/mpi_functions.h"

namespace lockstep {
namespace {

// Handles are pointers in Open MPI and integers in MPICH.
template <class Handle>
MpiHandle to_integer(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<MpiHandle>(handle);
  else
    return static_cast<MpiHandle>(handle);
}
template <class Handle>
Handle to_handle(MpiHandle integer) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<Handle>(integer);
  else
    return static_cast<Handle>(integer);
}

MPI_Comm comm_of(MpiHandle comm) { return to_handle<MPI_Comm>(comm); }
MPI_Request request_of(MpiHandle request) { return request == 0 ? MPI_REQUEST_NULL : to_handle<MPI_Request>(request); }
void set_request(MpiHandle* out, MPI_Request request) { *out = request == MPI_REQUEST_NULL ? 0 : to_integer(request); }

int level_of(MpiThreads threads) {
  switch (threads) {
    case MpiThreads::single:
      return MPI_THREAD_SINGLE;
    case MpiThreads::funneled:
      return MPI_THREAD_FUNNELED;
    case MpiThreads::serialized:
      return MPI_THREAD_SERIALIZED;
    case MpiThreads::multiple:
      break;
  }
  return MPI_THREAD_MULTIPLE;
}

MpiThreads threads_of(int level) {
  return level >= MPI_THREAD_MULTIPLE     ? MpiThreads::multiple
         : level >= MPI_THREAD_SERIALIZED ? MpiThreads::serialized
         : level >= MPI_THREAD_FUNNELED   ? MpiThreads::funneled
                                          : MpiThreads::single;
}

void copy_text(const char* from, int length, char* text, int size) {
  const int count = std::clamp(length, 0, size - 1);
  std::memcpy(text, from, static_cast<size_t>(count));
  text[count] = '\0';
}

int library_version(char* text, int size) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  const int code = MPI_Get_library_version(version, &length);
  copy_text(version, length, text, size);
  return code;
}

int initialized(int* is) { return MPI_Initialized(is); }
int finalized(int* is) { return MPI_Finalized(is); }

int query_thread(MpiThreads* provided) {
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Query_thread(&level);
  *provided = threads_of(level);
  return code;
}

int init_thread(MpiThreads wanted, MpiThreads* provided) {
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, level_of(wanted), &level);
  *provided = threads_of(level);
  return code;
}

int finalize() { return MPI_Finalize(); }

int duplicate_world(MpiHandle* made) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm); code != MPI_SUCCESS) return code;
  *made = to_integer(comm);
  return MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

int place(MpiHandle comm, int* rank, int* size, int* max_tag) {
  void* bound = nullptr;
  int found = 0;
  int code = MPI_Comm_rank(comm_of(comm), rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(comm_of(comm), size);
  if (code == MPI_SUCCESS) code = MPI_Comm_get_attr(comm_of(comm), MPI_TAG_UB, &bound, &found);
  constexpr int kLeastTags = 32767;  // that every MPI library supports
  *max_tag = code == MPI_SUCCESS && found ? *static_cast<int*>(bound) : kLeastTags;
  return code;
}

int describe_error(int code, char* text, int size) {
  char message[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  const int result = MPI_Error_string(code, message, &length);
  copy_text(message, length, text, size);
  return result;
}

int send(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm_of(comm), &made);
  set_request(request, made);
  return code;
}

int receive(void* data, int bytes, int from, int tag, MpiHandle comm, MpiHandle* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, from, tag == kMpiAnyTag ? MPI_ANY_TAG : tag, comm_of(comm), &made);
  set_request(request, made);
  return code;
}

int set_arrival(MPI_Status& status, MpiArrival* arrival) {
  arrival->source = status.MPI_SOURCE;
  arrival->tag = status.MPI_TAG;
  return MPI_Get_count(&status, MPI_BYTE, &arrival->bytes);
}

int test(MpiHandle* request, int tests, int* done, MpiArrival* arrival) {
  MPI_Request tested = request_of(*request);
  MPI_Status status;
  int code = MPI_SUCCESS;
  *done = 0;
  for (int i = 0; i < tests && !*done && code == MPI_SUCCESS; ++i) code = MPI_Test(&tested, done, &status);
  set_request(request, tested);
  return *done && arrival && code == MPI_SUCCESS ? set_arrival(status, arrival) : code;
}

int cancel(MpiHandle* request) {
  MPI_Request cancelled = request_of(*request);
  const int code = MPI_Cancel(&cancelled);
  set_request(request, cancelled);
  return code;
}

int free_request(MpiHandle* request) {
  MPI_Request freed = request_of(*request);
  const int code = MPI_Request_free(&freed);
  set_request(request, freed);
  return code;
}

int find_message(int tag, MpiHandle comm, int* arrived, MpiHandle* message, MpiArrival* arrival) {
  MPI_Message found = MPI_MESSAGE_NULL;
  MPI_Status status;
  const int code = MPI_Improbe(MPI_ANY_SOURCE, tag, comm_of(comm), arrived, &found, &status);
  if (code != MPI_SUCCESS || !*arrived) return code;
  *message = to_integer(found);
  return set_arrival(status, arrival);
}

int receive_message(void* data, int bytes, MpiHandle* message) {
  MPI_Message received = to_handle<MPI_Message>(*message);
  return MPI_Mrecv(data, bytes, MPI_BYTE, &received, MPI_STATUS_IGNORE);
}

constexpr MpiFunctions kFunctions = {
    .interface = kMpiInterface,
    .library_version = library_version,
    .initialized = initialized,
    .finalized = finalized,
    .query_thread = query_thread,
    .init_thread = init_thread,
    .finalize = finalize,
    .duplicate_world = duplicate_world,
    .place = place,
    .describe_error = describe_error,
    .send = send,
    .receive = receive,
    .test = test,
    .cancel = cancel,
    .free_request = free_request,
    .find_message = find_message,
    .receive_message = receive_message,
};

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) const lockstep::MpiFunctions* lockstep_mpi_functions() {
  return &lockstep::kFunctions;
}
