#pragma once
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace triax::parallel {

/// One operation in flight, as its transport sees it. It keeps its tensors alive. Used by the
/// thread that started it.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Goes on as far as it can without blocking; true when finished. Throws the error that ended it.
  virtual bool advance() = 0;
  /// Goes on until finished.
  virtual void wait() = 0;
  /// Called when nobody will wait: keeps the tensors as long as a peer may touch them, and lets no
  /// later call on this communicator begin, because of `error`.
  virtual void abandon(std::exception_ptr error) noexcept = 0;
};

/// The reason why a communicator can no longer be used. Shared by it and its operations.
struct Fault {
  std::exception_ptr error;
  /// Notes an error; the first one counts.
  void note(std::exception_ptr why) noexcept {
    if (!error) error = std::move(why);
  }
};

/// The handle of an operation in flight. Until `wait()` returned (or `done()` said true) the
/// tensors belong to the operation; after it, code that follows on this thread may use them.
///
/// Destroyed in normal flow it waits; if that fails, the error is thrown by the next call on the
/// communicator. Destroyed while an exception unwinds it does not wait, since the peers may never
/// come: the communicator keeps the tensors and refuses later calls.
class [[nodiscard]] Work {
 public:
  /// Makes a handle that is finished.
  Work() = default;
  explicit Work(std::shared_ptr<Operation> operation);
  Work(Work&& other) noexcept = default;
  /// Waits for the old operation of this handle, as on destruction.
  Work& operator=(Work&& other) noexcept;
  ~Work() { finish(); }

  /// Waits for the end. Throws Error 72 (a peer was lost, or the time limit passed) or 76 (ranks
  /// called different operations). Does nothing if finished.
  void wait();
  /// Goes on without blocking; true when finished. Throws like `wait()`.
  bool done();
  /// Hands the operation to one that wraps it; null if finished. This handle is then finished.
  std::shared_ptr<Operation> release() { return std::exchange(operation_, nullptr); }

 private:
  void finish() noexcept;
  std::shared_ptr<Operation> operation_;
  int unwinding_ = 0;  // exceptions that were unwinding already when the operation started
};

/// The base of things that advance only when their rank attends to them.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Goes on as far as possible without blocking. Keeps errors for those who wait.
  virtual void advance() noexcept = 0;
  /// Called before this rank blocks on its own device alone: lets nothing that peers may wait for
  /// depend on a later `advance`. Keeps errors likewise.
  virtual void settle() noexcept {}
};

/// The engines of one rank (one thread) that have something in flight. Whoever waits for one
/// operation advances them all: a peer may need this rank's part in another before it comes to
/// this one.
class Engines {
 public:
  static Engines& of_this_thread();
  void add(Engine& engine);
  void remove(Engine& engine);
  void poll();
  void settle();

 private:
  std::vector<Engine*> engines_;
};

/// Advances what this thread has in flight on any communicator, without blocking. Called from
/// gradient hooks, so that transfers go on while gradients are computed. Errors are kept for the
/// wait.
void poll();

}  // namespace triax::parallel
