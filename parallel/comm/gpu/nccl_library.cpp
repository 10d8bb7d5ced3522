#include <dlfcn.h>
#include <nccl.h>

#include <string>

#include "triax/core/check.h"

// NCCL is opened when ranks on GPUs first ask for it: linked, one that is missing, or too old to
// have all functions, would keep every program from starting, also on CPUs. These functions stand
// in its place.

namespace {

int version_of(void* library) {
  int version = 0;
  if (void* found = dlsym(library, "ncclGetVersion"))
    reinterpret_cast<decltype(&ncclGetVersion)>(found)(&version);
  return version;
}

void* library() {
  // Opens the build's library where the system has none, or an older one.
  static void* const opened = [] {
    std::string why;
    void* old = nullptr;
    for (const char* path : {"libnccl.so.2", TRIAX_NCCL_PATH}) {
      void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (handle && version_of(handle) >= NCCL_VERSION_CODE) return handle;
      if (handle && !old) old = handle;
      if (!handle) why += (why.empty() ? "" : "; ") + std::string(dlerror());
    }
    triax::check_input(old, triax::Exit::config,
                       "nccl: {}\n  Install NCCL and put its directory first in LD_LIBRARY_PATH, "
                       "or use --comm mpi.",
                       why);
    return old;
  }();
  return opened;
}

/// Returns the library's function that has the name and type of `ours`.
template <auto ours, class... Arguments> auto theirs(const char* name, Arguments... arguments) {
  static const auto function = [&] {
    void* found = dlsym(library(), name);
    triax::check_input(found != nullptr, triax::Exit::config,
                       "nccl: libnccl.so.2 has no {}\n  Put the directory of a newer one first in "
                       "LD_LIBRARY_PATH, or use --comm mpi.",
                       name);
    return reinterpret_cast<decltype(ours)>(found);
  }();
  return function(arguments...);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) { return theirs<&ncclGetVersion>(__func__, version); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return theirs<&ncclGetUniqueId>(__func__, id); }
const char* ncclGetErrorString(ncclResult_t result) {
  return theirs<&ncclGetErrorString>(__func__, result);
}
const char* ncclGetLastError(ncclComm_t comm) { return theirs<&ncclGetLastError>(__func__, comm); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return theirs<&ncclCommInitRankConfig>(__func__, comm, size, id, rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  return theirs<&ncclCommSplit>(__func__, comm, color, key, part, config);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  return theirs<&ncclCommGetAsyncError>(__func__, comm, result);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return theirs<&ncclCommFinalize>(__func__, comm); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return theirs<&ncclCommDestroy>(__func__, comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return theirs<&ncclCommAbort>(__func__, comm); }
ncclResult_t ncclGroupStart() { return theirs<&ncclGroupStart>(__func__); }
ncclResult_t ncclGroupEnd() { return theirs<&ncclGroupEnd>(__func__); }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return theirs<&ncclAllReduce>(__func__, from, to, count, type, op, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return theirs<&ncclAllGather>(__func__, from, to, count, type, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return theirs<&ncclReduceScatter>(__func__, from, to, count, type, op, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return theirs<&ncclBroadcast>(__func__, from, to, count, type, root, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return theirs<&ncclReduce>(__func__, from, to, count, type, op, root, comm, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return theirs<&ncclSend>(__func__, from, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return theirs<&ncclRecv>(__func__, to, count, type, peer, comm, stream);
}
