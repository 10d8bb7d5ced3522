#pragma once
#include <functional>
#include <string>
#include <vector>

namespace triax::parallel {

/// What a checkpoint needs of its group of ranks: a few words on the host, no tensors. Both calls
/// are collective, return only after every rank has made them, and throw on every rank if one dies.
class Coordinator {
 public:
  virtual ~Coordinator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Rank 0's text, on every rank.
  virtual std::string broadcast(const std::string& text) = 0;
  /// On rank 0 the texts of all ranks, in their order; empty elsewhere.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
};

/// A group of one.
class Alone final : public Coordinator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string broadcast(const std::string& text) override { return text; }
  std::vector<std::string> gather(const std::string& text) override { return {text}; }
};

/// Do `work`, then meet: a barrier that carries success or failure. If the work failed on any
/// rank, every rank throws the Error of the lowest one that failed.
void together(Coordinator& ranks, const std::function<void()>& work);

/// `together` for what only rank 0 does; every rank gets the text it returns.
std::string on_first(Coordinator& ranks, const std::function<std::string()>& work);

}  // namespace triax::parallel
