#pragma once
#include <vector>

namespace triax::parallel {

/// Something that moves on only when its rank looks after it.
class Engine {
 public:
  virtual ~Engine();
  /// Go on as far as possible without blocking. Keeps errors for those who wait.
  virtual void advance() noexcept = 0;
  /// This rank is about to block: let nothing that peers may wait for depend on a later `advance`,
  /// if only this rank's own device is to be waited for. Keeps errors likewise.
  virtual void settle() noexcept {}
};

/// The engines of one rank (one thread) that have something in flight. Whoever waits for one
/// operation advances them all: a peer may need this rank's part in another before it comes to
/// this one.
class Progress {
 public:
  static Progress& of_this_thread();
  void add(Engine& engine);
  void remove(Engine& engine);
  void poll();
  void settle();

 private:
  std::vector<Engine*> engines_;
};

}  // namespace triax::parallel
