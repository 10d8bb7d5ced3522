#pragma once
#include <functional>
#include <string>
#include <vector>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel::cases {

/// One test of every transport, run by all ranks of a world. Throws if something is wrong.
struct CollectiveCase {
  std::string name;
  std::function<void(Communicator& world)> run;
};
const std::vector<CollectiveCase>& collective_cases();

void all_to_all(Communicator& c);
void all_to_all_with_counts(Communicator& c);

/// Small integers, different for each rank and place, so that sums are exact in every dtype (u8
/// and bf16 included, for up to 8 ranks).
double value(int rank, int64_t i, int salt = 0);
/// Where the communicator's tensors live.
Tensor filled(const Communicator& c, int64_t n, DType dtype,
              const std::function<double(int64_t)>& f);
/// x[i] = f(i), or an Error that begins with `what`.
void expect(const char* what, const Tensor& x, const std::function<double(int64_t)>& f);
/// Every dtype, with sizes from nothing to a few pieces.
void for_all(const std::function<void(DType, int64_t)>& f);

}  // namespace triax::parallel::cases
