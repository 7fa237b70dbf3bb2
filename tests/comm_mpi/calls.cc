// Intercepts the MPI calls of the library, with the profiling interface of MPI, and counts the calling threads.
#include "comm_mpi/calls.h"

#include <mpi.h>

#include <atomic>
#include <thread>

namespace lockstep {

namespace {

std::atomic<std::thread::id> initializer;
std::atomic<int> calls, from_other_threads;

void count_call() {
  ++calls;
  if (std::this_thread::get_id() != initializer.load()) ++from_other_threads;
}

}  // namespace

MpiCalls mpi_calls() { return {calls.load(), from_other_threads.load()}; }

}  // namespace lockstep

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  lockstep::initializer = std::this_thread::get_id();
  return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Finalize() {
  lockstep::count_call();
  return PMPI_Finalize();
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  lockstep::count_call();
  return PMPI_Comm_dup(comm, made);
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  lockstep::count_call();
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  lockstep::count_call();
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  lockstep::count_call();
  return PMPI_Test(request, done, status);
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int* there, MPI_Message* message, MPI_Status* status) {
  lockstep::count_call();
  return PMPI_Improbe(from, tag, comm, there, message, status);
}

int MPI_Mrecv(void* data, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
  lockstep::count_call();
  return PMPI_Mrecv(data, count, type, message, status);
}

int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
  lockstep::count_call();
  return PMPI_Get_count(status, type, count);
}

int MPI_Cancel(MPI_Request* request) {
  lockstep::count_call();
  return PMPI_Cancel(request);
}

int MPI_Request_free(MPI_Request* request) {
  lockstep::count_call();
  return PMPI_Request_free(request);
}

}  // extern "C"
