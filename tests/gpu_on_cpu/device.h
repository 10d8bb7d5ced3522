#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/gpu_on_cpu/races.h"
#include "tests/gpu_on_cpu/runtime.h"

// What the stand-in's files share.

namespace triax::gpu_on_cpu {

/// A place in a stream's work that others wait for.
class Point {
 public:
  void reach();
  bool reached() const;
  void wait();
  double at() const { return at_; }  ///< milliseconds, once reached

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  double at_ = 0;
};

/// A place in the memory of a device, for other processes of this host; null: process 0.
struct Where {
  int process = 0, file = 0;
  size_t bytes = 0, offset = 0;
};
Where where_is(const void* data);
/// Returns the address of such a place here.
void* address_of(const Where& where);
/// Opens a file that another process, or this one, has open; -1 if it is gone.
int open_in_process(int process, int file);

/// Memory of one device, protected while nothing runs.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* allocate(size_t bytes);  ///< null if full
  bool free(void* data);         ///< false if it is no block of this device
  size_t unused() const;
  bool holds(const void* data) const;
  Where where(const void* data) const;
  void* address(const Where& where) const;  ///< null if it is elsewhere
  void protect(int how);                    ///< as mprotect has it

 private:
  char* base_;
  size_t bytes_;
  int file_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> used_;  // begin -> bytes
};

/// All devices' memory is open as long as one lives, and after it until close_memory().
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

/// Called where the host has waited, unless something runs.
void close_memory();

const Options& options();
std::vector<std::unique_ptr<Memory>>& memories();
extern std::atomic<int64_t> allocations, pinned, host_waits, works,
    questions;  // NOLINT: what calls() returns

/// Everything queued on any stream of a device is done.
void wait_for_device(int device);
/// Tells whether kernels are loaded at their first launch. As CUDA has it, what the environment
/// says at the first call counts.
bool loads_lazily();
/// Loads a kernel, named by any number, unless its device has it: waits for that device.
void load(cudaStream_t stream, size_t kernel);

/// The last error of the calling thread, as cudaGetLastError() has it.
cudaError_t remember(cudaError_t status);
/// Of the calling thread.
int current_device();
/// Is a stream being captured that the calling thread began to capture? Not if it asked for
/// leave (cudaThreadExchangeStreamCaptureMode).
bool thread_captures();
/// For a call that nobody may make then: what it returns, and the thread's capture is invalid.
cudaError_t refuse_while_captured();
/// Makes all captures of the calling thread invalid, and remembers `status`.
cudaError_t invalidate(cudaError_t status);

}  // namespace triax::gpu_on_cpu

using triax::gpu_on_cpu::Point;

struct CUgraph_st {
  std::vector<std::function<void()>> works;
  bool over = false;     // what was captured; streams that had joined notice at their next call
  bool invalid = false;  // something was called that a capture does not allow
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<std::function<void()>>> works;  // streams may still run them
};
struct CUevent_st {
  const int device;  // the current one when it was made
  std::mutex mutex = {};
  std::shared_ptr<Point> point = {};             // of the last record; null before the first
  std::shared_ptr<CUgraph_st> captured_in = {};  // recorded while capturing
  triax::gpu_on_cpu::Clock clock = {};           // of the last record
};
/// A thread that works in order.
struct CUstream_st {
  explicit CUstream_st(int on);
  ~CUstream_st();
  /// Says what work is: it may touch memory, waits for another stream, is an event that others wait
  /// for, or only tells the host how far the stream is.
  enum class Kind { touches, waits, marks, tells };
  void push(std::function<void()> work, Kind kind = Kind::touches);
  /// Returns a place behind all work so far.
  std::shared_ptr<Point> mark(Kind kind = Kind::tells);
  cudaError_t synchronize();

  const int device;
  const int number = int(++made) - 1;   // no other stream has it
  triax::gpu_on_cpu::Clock clock = {};  // what it is behind; races.cpp's
  // Null unless this is captured; touched by the host's thread that captures.
  std::shared_ptr<CUgraph_st>& capture();
  bool began = false;  // the capture, rather than joined it by an event
  std::atomic<bool> failed = false;

 private:
  void work();

  inline static std::atomic<unsigned> made = 0;
  std::shared_ptr<CUgraph_st> capture_;
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Work {
    std::function<void()> run;
    Kind kind;
    bool last = false;                   // none waits behind it
    std::shared_ptr<Point> before = {};  // it starts behind this
    std::shared_ptr<Point> passed = {};  // the next of the device's one queue starts behind this
  };
  Work next();
  void queue_up(Work& work) const;
  std::deque<Work> queue_;
  bool stop_ = false;
  std::thread thread_;
};
