#pragma once
#include <string>
#include <vector>

#include "optim/adamw.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/data/data_parallel.h"

namespace triax::minigpt {

/// Which elements of the whole parameter this rank's tensor-parallel slice is.
parallel::Part part_of(const nn::Parameter& p);

/// Whose copy of a value: of replicas one is the owner.
enum class Holder { owner, any };

/// A tensor laid out as optimizer slot `slot` from element `begin` on, and what it is of the
/// parameters.
struct Flat {
  size_t slot;
  Tensor value;
  std::string kind;
  int64_t begin = 0;
};
/// Add what it holds, parameter by parameter, without padding.
void add_pieces(std::vector<parallel::Piece>& all, const parallel::DataParallel& data,
                const Flat& flat, Holder whose);

/// Weights and optimizer state by logical name, without padding: what a checkpoint holds.
std::vector<parallel::Piece> pieces(const parallel::DataParallel& data, const optim::AdamW& adam,
                                    Holder whose);
/// The gradients alone, after finish().
std::vector<parallel::Piece> gradient_pieces(const parallel::DataParallel& data);

}  // namespace triax::minigpt
