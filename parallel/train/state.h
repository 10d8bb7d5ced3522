#pragma once
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/data/data_parallel.h"

namespace triax::parallel {

/// Which elements of the whole parameter this rank's tensor-parallel slice is.
Part part_of(const nn::Parameter& p);

/// Whose copy of a value: of replicas one is the owner.
enum class Holder { owner, any };

/// Weights and optimizer state by logical name, without padding: what a checkpoint holds.
std::vector<Piece> pieces(const DataParallel& data, const optim::Optimizer& optimizer,
                          Holder whose);
/// The weights alone: what inference needs.
std::vector<Piece> weight_pieces(const DataParallel& data, Holder whose);
/// The gradients alone, after finish().
std::vector<Piece> gradient_pieces(const DataParallel& data);

/// `block0.up.weight`, or `block0.up.weight/m` of an optimizer's state.
std::string name_of(const Piece& piece);

}  // namespace triax::parallel
