#pragma once
#include <functional>
#include <vector>

#include "triax/core/tensor.h"
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// Rows [shares][pieces][length] of a split stretch, cut into pieces of [shares][length]: of each
/// rank's share of them, or of all. Outside, a rank's rows are [pieces][length].
struct Pieces {
  int64_t shares = 1;  ///< the ranks, with sequence parallelism
  int64_t count = 1;

  /// Returns as many equal pieces of `rows` outside as this many at most can be.
  Pieces of(int64_t rows) const;
  /// Returns the rows of piece `c`, contiguous: a view where that is possible.
  Tensor take(const Tensor& rows, int64_t c) const;
  void put(const Tensor& piece, const Tensor& rows, int64_t c) const;
  /// Returns the function that cuts x: each of its pieces once, in order, with its history.
  std::function<Tensor(int64_t c)> cut(const Tensor& x) const;
  /// Returns the rows of which these are the pieces, with their history.
  Tensor join(const Tensors& pieces) const;
};

/// Gathers the rows of all ranks, piece by piece (sequence parallelism).
class Gathering {
 public:
  /// `mine` [rows outside, width] is this rank's share.
  Gathering(Communicator& tp, const Pieces& pieces, Tensor mine);
  /// Starts the gathering of a piece, unless that has been done, and returns its memory.
  const Tensor& start(int64_t c);
  /// Waits for a piece that was started, and returns it.
  Tensor finish(int64_t c);
  /// Returns a piece, once the next one, `beside`, if there is one, has been started.
  Tensor take(int64_t c, int64_t beside);

 private:
  Communicator& tp_;
  Pieces pieces_;
  Tensor mine_;
  Tensors parts_;
  std::vector<Work> works_;
};

/// Sums parts of rows over the ranks, piece by piece: for this rank its share of the sum, or all.
class Summing {
 public:
  Summing(Communicator& tp, const Pieces& pieces) : tp_(tp), pieces_(pieces) {}
  /// Starts the sum of piece `c`, and returns, with the last one, the memory of all sums.
  Tensor add(const Tensor& part, int64_t c);
  void wait();

 private:
  Communicator& tp_;
  Pieces pieces_;
  Tensor sums_;
  std::vector<Work> works_;
};

}  // namespace triax::parallel
